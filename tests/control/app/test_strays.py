"""Machines that a restored database does not know: listed, and removed when an operator says so, never otherwise."""

import pytest

from control.cluster import Cluster
from control.fleet import Agent, condition
from gpuaas.control.app import nodes, strays
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import Ids
from gpuaas.wire.node import Holding, Scrub, Spec


def found(cluster: Cluster, node: str = "node-1") -> dict[str, tuple[list[str], bool]]:
    """By id: its slots, and whether it is being removed."""
    listed = cluster.store.transact(strays.list_strays, cluster.caller, node)
    return {stray.id: (slots, stray.removed_at is not None) for stray, slots in listed}


def remove(cluster: Cluster, id: str, node: str = "node-1", confirm: str = "") -> None:
    cluster.store.transact(strays.remove, cluster.caller, node, id, confirm or id)


def refused(cluster: Cluster, id: str, node: str = "node-1", confirm: str = "") -> str:
    with pytest.raises(Problem) as problem:
        remove(cluster, id, node, confirm)
    return problem.value.code


def stray(cluster: Cluster, agent: Agent) -> Holding:
    made = Holding(Ids().new("al"), 2, 7, 0, [cluster.slots(agent)[0].id], seat=0)
    agent.report(unknown=[made])
    return made


def tombstone(agent: Agent) -> Spec:
    (spec,) = agent.pull()
    assert spec.body is None
    return spec


@pytest.mark.parametrize(("clean", "reason"), [(True, "was removed; scrubbed"), (False, "was removed; not scrubbed")])
def test_it_is_kept_until_somebody_removes_it(cluster: Cluster, clean: bool, reason: str) -> None:
    agent = cluster.agent(gpus=1)
    held = stray(cluster, agent)
    assert found(cluster) == {held.id: (["gpu-0"], False)}
    assert agent.pull() == []
    assert refused(cluster, held.id, confirm="al-other") == "not_confirmed"
    assert agent.pull() == []
    remove(cluster, held.id)
    assert found(cluster) == {held.id: (["gpu-0"], True)}
    spec = tombstone(agent)
    assert (spec.id, spec.incarnation, spec.generation) == (held.id, 2, 8), "newer than all that the node has heard"
    agent.report(condition(spec, "gone", scrubs=[Scrub("GPU-node-1-0", clean)]))
    assert found(cluster) == {}
    (slot,) = cluster.slots(agent)
    assert (slot.state, slot.reason) == ("quarantined", f"{held.id} {reason}")
    assert cluster.sql("SELECT * FROM strangers") == [], "its seat is free"
    actions = [row.action for row in cluster.sql("SELECT action FROM audit WHERE action LIKE 'stray%' ORDER BY seq")]
    assert actions == ["stray.remove", "stray.removed"]
    cluster.store.transact(nodes.return_slot, cluster.caller, "node-1", "gpu-0")
    agent.report(condition(tombstone(agent), "gone", scrubs=[Scrub("GPU-node-1-0", clean=True)]))
    cluster.launch("in its place")


def test_asking_twice_is_one_tombstone(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    held = stray(cluster, agent)
    remove(cluster, held.id)
    remove(cluster, held.id)
    tombstone(agent)
    agent.report(unknown=[held])  # said once more before it was carried out
    assert found(cluster) == {held.id: (["gpu-0"], True)}


def test_what_the_node_deleted_by_itself_is_forgotten(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    held = stray(cluster, agent)
    agent.report(unknown=[Holding(held.id, 2, 8, 0, held.slots, gone=True)])
    assert found(cluster) == {}
    assert refused(cluster, held.id) == "not_found"


def test_machines_that_are_known_cannot_be_removed_this_way(cluster: Cluster) -> None:
    agent, other = cluster.agent("node-1", gpus=1), cluster.agent("node-2", gpus=1)
    held = stray(cluster, agent)
    id = cluster.launch()
    assert refused(cluster, id, "node-2") == "not_found"
    assert refused(cluster, held.id, "node-2") == "not_found"
    assert refused(cluster, held.id, "node-9") == "not_found"
    cluster.sql("UPDATE strays SET id = :id, node_id = :node", id=id, node=other.node_id)
    assert refused(cluster, id, "node-2") == "not_found", "the database knows it by now"


def test_a_node_that_says_it_is_gone_without_being_asked_changes_nothing(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    held = stray(cluster, agent)
    agent.report(condition(Spec(held.id, 2, 8, 1, None), "gone"))
    assert found(cluster) == {held.id: (["gpu-0"], False)}
