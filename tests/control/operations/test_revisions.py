"""Revisions of a version lie side by side: the name means the newest, and one can go back."""

from control import catalog
from control.cluster import Cluster
from gpuaas.control.app import runtime_bundles, runtimes
from gpuaas.control.store import allocation_runtimes


def test_upgraded_to_a_revision_and_back(cluster: Cluster) -> None:
    agent = cluster.agent()
    catalog.publish(cluster.store, "torch", "2+ml", default=True)
    id = cluster.launch(runtime_bundle_slug="torch")
    agent.settle()

    def has() -> dict[str, str]:
        rows = cluster.store.transact(allocation_runtimes.live, id)
        return {row.version: row.state for row, _ in rows}

    def apply(version: str) -> None:
        cluster.store.transact(runtimes.apply, cluster.caller, id, None, "torch", version, None)
        agent.settle()

    assert has() == {"2+ml": "applied"}
    newer = catalog.publish(cluster.store, "torch", "2+ml-r2", default=True)
    assert has() == {"2+ml": "applied"}, "nothing changes by itself"
    apply("2+ml")
    assert has() == {"2+ml": "kept", "2+ml-r2": "applied"}
    cluster.store.transact(runtimes.rollback, cluster.caller, id, "torch", None)
    agent.settle()
    assert has() == {"2+ml": "applied", "2+ml-r2": "kept"}
    apply("2+ml-r2")
    cluster.store.transact(runtime_bundles.deprecate, cluster.caller, newer.id)
    apply("2+ml")  # the revision before is the newest that anybody gets
    assert has() == {"2+ml": "applied", "2+ml-r2": "kept"}
