"""An offer is an outcome: the control plane chooses a slice or a whole node, says so, and keeps a whole node whole."""

from typing import Any

import pytest

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.app import nodes as fleet
from gpuaas.control.app import offers
from gpuaas.control.app.plans import plan
from gpuaas.control.http import views
from gpuaas.kit.errors import Problem
from gpuaas.wire.node import GpuReport, SlotProposal


def offer(cluster: Cluster, slug: str, gpus: int, *realisations: str, isolation: str = "any") -> None:
    values: dict[str, Any] = {"name": slug, "gpu_model": "H100", "cpus": 1, "memory_mib": 256, "isolation": isolation}
    cluster.store.transact(
        offers.create_offer, cluster.caller, slug=slug, gpu_count=gpus, realisations=list(realisations),
        price_micros_per_hour=0, **values,
    )  # fmt: skip


def planned(cluster: Cluster, slug: str) -> list[str]:
    return views.plan(cluster.store.transact(plan, cluster.caller, slug, None, 1)).realisations


def place(cluster: Cluster, id: str) -> str:
    return str(next(phase["message"] for phase in cluster.operation(id).phases if phase["name"] == "place"))


def one_more(agent: Agent) -> None:
    """A GPU is put in."""
    made, uuid = agent.inventory(), f"GPU-{agent.name}-new"
    gpus = [*made.gpus, GpuReport(uuid, 99, "nvidia", "H100", 81920)]
    agent.report(inventory=agent.inventory(gpus=gpus, slots=[*made.slots, SlotProposal("new", [uuid], 4, 4096)]))


def test_a_whole_node_where_one_of_that_size_is_free_else_a_slice(cluster: Cluster) -> None:
    cluster.agent("two", gpus=2)
    offer(cluster, "pair", 2, "baremetal", "gpu_slice")
    assert planned(cluster, "pair") == ["baremetal"]
    first = cluster.launch("first", offer="pair")
    assert cluster.allocation(first).realisation == "baremetal"
    assert place(cluster, first) == "as baremetal: a whole node"
    cluster.agent("four", gpus=4)
    assert planned(cluster, "pair") == ["gpu_slice"]
    second = cluster.launch("second", offer="pair")
    assert cluster.allocation(second).realisation == "gpu_slice"
    assert place(cluster, second) == "as gpu_slice: 2 slots of a node"


def test_bare_metal_has_all_of_its_node_and_a_slice_what_was_bought(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    offer(cluster, "metal", 2, "baremetal")
    offer(cluster, "slice", 2, "gpu_slice")
    for slug, cpus, memory_mib in (("metal", 8, 8192), ("slice", 1, 256)):
        id = cluster.launch(slug, offer=slug)
        (spec,) = [spec for spec in agent.pull() if spec.id == id]
        assert spec.body is not None
        assert (spec.body.cpus, spec.body.memory_mib, len(spec.body.slots)) == (cpus, memory_mib, 2)
        agent.settle()
        cluster.release(id)
        agent.settle()


@pytest.mark.parametrize(("realisation", "isolation"), [("baremetal", "any"), ("gpu_slice", "dedicated_node")])
def test_what_comes_later_to_a_whole_node_is_not_for_others(cluster: Cluster, realisation: str, isolation: str) -> None:
    agent = cluster.agent("a", gpus=2)
    offer(cluster, "whole", 2, realisation, isolation=isolation)
    id = cluster.launch("whole", offer="whole")
    agent.settle()
    one_more(agent)
    assert [slot.state for slot in cluster.slots(agent)] == ["approved"] * 3
    assert [row.open for row in cluster.sql("SELECT open FROM capacity")] == [False]
    with pytest.raises(Problem, match="somebody has the whole machine"):
        cluster.launch("other")
    cluster.release(id)
    with pytest.raises(Problem, match="somebody has the whole machine"):
        cluster.launch("other")  # not scrubbed yet
    agent.settle()
    cluster.launch("other")


def test_a_node_in_use_is_no_whole_one(cluster: Cluster) -> None:
    cluster.agent("a", gpus=2, approve_slots=False)
    cluster.store.transact(fleet.approve, cluster.caller, "a", ["gpu-1"])
    offer(cluster, "one", 1, "baremetal")
    with pytest.raises(Problem, match="not free as a whole"):
        cluster.launch("m", offer="one")
    cluster.store.transact(fleet.approve, cluster.caller, "a", [])
    with pytest.raises(Problem, match="a whole machine does not have 1 GPUs"):
        cluster.launch("m", offer="one")
