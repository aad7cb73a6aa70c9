"""From what a node reports to slots: a node never changes what is approved by saying so."""

import pytest
from msgspec.structs import replace

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.app import nodes as fleet
from gpuaas.kit.errors import Problem
from gpuaas.wire.node import Inventory, SlotProposal

XID = "the driver reported the critical error XID 79"


def states(cluster: Cluster, agent: Agent) -> dict[str, str]:
    return {slot.name: slot.state for slot in cluster.slots(agent)}


def test_slots_wait_for_approval_unless_the_join_token_said_otherwise(cluster: Cluster) -> None:
    assert states(cluster, cluster.agent("node-1", gpus=1)) == {"gpu-0": "approved"}
    assert states(cluster, cluster.agent("node-2", gpus=1, approve_slots=False)) == {"gpu-0": "proposed"}


def test_the_same_report_again_changes_nothing(cluster: Cluster) -> None:
    agent = cluster.agent()
    before = cluster.slots(agent)
    agent.connect()
    agent.report(inventory=agent.inventory())
    assert cluster.slots(agent) == before


def test_an_approved_slot_does_not_grow_by_itself(cluster: Cluster) -> None:
    """T40: more GPUs or CPUs under the same name are a new proposal."""
    agent = cluster.agent(gpus=1, approve_slots=False)
    cluster.sql("UPDATE slots SET state = 'approved'")
    (before,) = cluster.slots(agent)
    agent.report(inventory=agent.inventory(slots=[SlotProposal("gpu-0", ["GPU-node-1-0"], 64, 65536)]))
    (after,) = cluster.slots(agent)
    assert (after.state, after.cpus) == ("proposed", 64)
    assert after.id != before.id


def test_a_missing_slot_is_retired_or_set_aside_while_in_use(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    cluster.launch()
    (spec,) = agent.pull()
    assert spec.body is not None
    used = spec.body.slots[0].id
    agent.report(inventory=agent.inventory(slots=[]))
    assert [(slot.id, slot.state) for slot in cluster.slots(agent)] == [(used, "quarantined")]


def test_a_gpu_is_in_one_slot_only(cluster: Cluster) -> None:
    """Neither twice on one node, nor on two nodes that claim the same one."""
    first = cluster.agent("node-1", gpus=1)
    overlapping = [
        SlotProposal("gpu-0", ["GPU-node-1-0"], 4, 4096),
        SlotProposal("both", ["GPU-node-1-0", "GPU-node-1-1"], 4, 4096),
        SlotProposal("twice", ["GPU-node-1-2", "GPU-node-1-2"], 4, 4096),
    ]
    first.report(inventory=first.inventory(slots=overlapping))
    assert set(states(cluster, first)) == {"gpu-0"}
    second = cluster.agent("node-2", gpus=0, connect=False)
    second.greet(inventory=second.inventory(slots=[SlotProposal("stolen", ["GPU-node-1-0"], 4, 4096)]))
    assert states(cluster, second) == {}
    assert states(cluster, first) == {"gpu-0": "approved"}


def test_two_slots_of_one_name_do_not_break_the_link(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    same = [SlotProposal("new", ["GPU-a"], 4, 4096), SlotProposal("new", ["GPU-b"], 4, 4096)]
    agent.report(inventory=agent.inventory(slots=same))
    assert set(states(cluster, agent)) == {"new"}


def test_a_node_that_is_not_ready_gets_nothing(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    agent.report(inventory=agent.inventory(ready=False, reason="no base image"))
    id = cluster.launch("waits", wait=True)
    assert cluster.allocation(id).state == "queued"
    assert agent.pull() == []


def unwell(agent: Agent, *indexes: int, proposed: bool = False) -> Inventory:
    """As a Linux host says it: a GPU with trouble is listed, but not proposed."""
    made = agent.inventory()
    gpus = [replace(gpu, trouble=XID) if gpu.index in indexes else gpu for gpu in made.gpus]
    slots = [slot for n, slot in enumerate(made.slots) if proposed or n not in indexes]
    return replace(made, gpus=gpus, slots=slots)


@pytest.mark.parametrize("proposed", [True, False])
def test_a_gpu_in_trouble_takes_its_slot_out_of_service(cluster: Cluster, proposed: bool) -> None:
    agent = cluster.agent(gpus=2)
    before = {slot.name: slot.id for slot in cluster.slots(agent)}
    agent.report(inventory=unwell(agent, 0, proposed=proposed))
    assert states(cluster, agent) == {"gpu-0": "quarantined", "gpu-1": "approved"}
    assert XID in cluster.slots(agent)[0].reason
    agent.report(inventory=agent.inventory())
    assert states(cluster, agent)["gpu-0"] == "quarantined", "well again is not looked at yet"
    assert {slot.name: slot.id for slot in cluster.slots(agent)} == before
    told = cluster.sql("SELECT data FROM audit WHERE action = 'slot.quarantined'")
    assert [row.data["slot"] for row in told] == [before["gpu-0"]]


def test_who_is_on_a_gpu_in_trouble_stays_and_nobody_follows(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    id = cluster.launch()
    agent.settle()
    agent.connect()
    agent.report(inventory=unwell(agent, 0))
    assert cluster.allocation(id).state == "active"
    assert states(cluster, agent) == {"gpu-0": "quarantined"}
    cluster.release(id)
    agent.settle()
    assert cluster.allocation(id).state == "released"
    with pytest.raises(Problem, match="Nothing fits"):
        cluster.launch("next")


def test_an_operator_returns_it_once_the_node_calls_it_well(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    agent.report(inventory=unwell(agent, 0))
    with pytest.raises(Problem, match="XID 79"):
        cluster.store.transact(fleet.return_slot, cluster.caller, "node-1", "gpu-0")
    agent.report(inventory=agent.inventory())
    cluster.store.transact(fleet.return_slot, cluster.caller, "node-1", "gpu-0")
    assert states(cluster, agent) == {"gpu-0": "approved"}


def test_a_gpu_in_trouble_is_not_approved(cluster: Cluster) -> None:
    agent = cluster.agent("manual", gpus=2, approve_slots=False)
    agent.report(inventory=unwell(agent, 0, proposed=True))
    with pytest.raises(Problem, match="XID 79"):
        cluster.store.transact(fleet.approve, cluster.caller, "manual", ["gpu-0"])
    cluster.store.transact(fleet.approve, cluster.caller, "manual", [])
    assert states(cluster, agent) == {"gpu-0": "proposed", "gpu-1": "approved"}
    trusted = cluster.agent("trusted", gpus=1, connect=False)
    trusted.greet(inventory=unwell(trusted, 0, proposed=True))
    assert states(cluster, trusted) == {"gpu-0": "quarantined"}
