"""One version, built for two architectures: whoever names it gets the build for where the machine is."""

import pytest

from control import catalog
from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.app import plans, runtime_bundles, runtimes
from gpuaas.control.store import allocation_runtimes
from gpuaas.control.sweeps import queue
from gpuaas.kit.errors import Problem

BUILDS = ("amd64", "arm64")


@pytest.fixture
def digests(cluster: Cluster) -> dict[str, str]:
    """By architecture."""
    return {each: catalog.publish(cluster.store, "torch", "1", architecture=each, image=each.encode()).digest
            for each in BUILDS}  # fmt: skip


def node(cluster: Cluster, name: str, architecture: str) -> Agent:
    agent = cluster.agent(name, gpus=1, connect=False)
    agent.architecture = architecture
    agent.connect()
    return agent


def has(agent: Agent, id: str) -> list[str]:
    agent.pull()
    body = agent.specs[id].body
    assert body is not None
    return [each.digest for each in body.runtimes]


def test_a_launch_takes_the_build_for_its_node(cluster: Cluster, digests: dict[str, str]) -> None:
    agents = {each: node(cluster, f"node-{each}", each) for each in BUILDS}
    by_node = {agent.node_id: each for each, agent in agents.items()}
    for name in ("a", "b"):
        id = cluster.launch(name, runtime_bundle_slug="torch")
        placed = cluster.allocation(id).node_id
        assert placed is not None
        assert has(agents[by_node[placed]], id) == [digests[by_node[placed]]]


def test_a_group_has_both(cluster: Cluster, digests: dict[str, str]) -> None:
    agents = [node(cluster, f"node-{each}", each) for each in BUILDS]
    cluster.launch("group", count=2, runtime_bundle_slug="torch:1")
    for agent, each in zip(agents, BUILDS, strict=True):
        agent.pull()
        (id,) = agent.specs
        assert has(agent, id) == [digests[each]]


def test_a_plan_counts_nodes_of_both(cluster: Cluster, digests: dict[str, str]) -> None:
    for each in BUILDS:
        node(cluster, f"node-{each}", each)
    found = cluster.store.look(lambda tx: plans.plan(tx, cluster.caller, "h100-1", None, 2, None, "torch"))
    assert (found.fits, found.runtime) == (True, "torch:1")


@pytest.mark.parametrize("comes", BUILDS)
def test_one_that_waits_gets_the_build_for_where_it_comes_up(
    cluster: Cluster, digests: dict[str, str], comes: str
) -> None:
    first = node(cluster, "node-1", "amd64")
    cluster.launch("holder")
    id = cluster.launch("late", wait=True, runtime_bundle_slug="torch")
    assert cluster.allocation(id).state == "queued"
    first.settle()
    second = node(cluster, "node-2", comes)
    queue.sweep(cluster.store)
    assert cluster.allocation(id).node_id == second.node_id
    assert has(second, id) == [digests[comes]]
    ((_, bundle),) = cluster.store.transact(allocation_runtimes.live, id)
    assert bundle.architecture == comes


def test_an_id_means_that_build_and_no_other(cluster: Cluster, digests: dict[str, str]) -> None:
    """Also while a machine waits: it is placed where that build can be used."""
    agent = node(cluster, "node-1", "arm64")
    known = cluster.store.transact(runtime_bundles.list_bundles, cluster.caller, False, None, 10)
    ids = {each.architecture: each.id for each in known}
    with pytest.raises(Problem) as refused:
        cluster.launch(runtime_bundle_id=ids["amd64"])
    assert refused.value.code == "runtime_incompatible"
    id = cluster.launch(runtime_bundle_id=ids["arm64"])
    assert has(agent, id) == [digests["arm64"]]


def test_a_name_is_applied_shown_and_deprecated_with_every_build(cluster: Cluster, digests: dict[str, str]) -> None:
    agent = node(cluster, "node-1", "arm64")
    id = cluster.launch()
    agent.settle()
    cluster.store.transact(runtimes.apply, cluster.caller, id, None, "torch", None, None)
    assert has(agent, id) == [digests["arm64"]]
    assert cluster.store.look(lambda tx: runtime_bundles.show(tx, cluster.caller, "torch")).version == "1"
    cluster.store.transact(runtime_bundles.deprecate, cluster.caller, "torch:1")
    left = cluster.store.transact(runtime_bundles.list_bundles, cluster.caller, False, None, 10)
    assert [each.name for each in left] == []
