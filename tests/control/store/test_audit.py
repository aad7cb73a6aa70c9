"""The chain: the database adds each link, and whoever verifies it computes the same."""

import pytest
from sqlalchemy.exc import IntegrityError

from control.cluster import Cluster
from gpuaas.control.store import events
from gpuaas.control.store.transaction import Tx


def written(cluster: Cluster, *said: str, org_id: str | None = None) -> tuple[int, str | None]:
    def work(tx: Tx) -> None:
        for each in said:
            tx.audit("test.said", org_id=org_id or cluster.project.org_id, kind="test", id=each, text=each, n=1.5)

    cluster.store.transact(work, actor='"seq":0,', correlation_id="ümlaut\\")
    return cluster.store.transact(events.verify_audit, cluster.project.org_id)


def test_several_entries_of_one_transaction_are_as_many_links_in_their_order(cluster: Cluster) -> None:
    before, _ = written(cluster, "first")
    after, problem = written(
        cluster, "a", '"seq":0,"tenant_boundary_mode":null}', "日本\U0001f600", 'quote " back \\ \n'
    )
    assert (after, problem) == (before + 4, None)
    rows = cluster.store.transact(events.audit, cluster.project.org_id, before, 10)
    assert [row.data["text"][0] for row in rows] == ["a", '"', "日", "q"]


def test_every_field_is_in_the_link(cluster: Cluster) -> None:
    count, _ = written(cluster, "a")
    cluster.sql("UPDATE audit SET actor = 'another' WHERE seq = :seq", seq=count)
    assert "altered" in (cluster.store.transact(events.verify_audit, cluster.project.org_id)[1] or "")


def test_there_is_no_entry_without_its_chain(cluster: Cluster) -> None:
    with pytest.raises(IntegrityError, match="seq"):
        written(cluster, "a", org_id="og-aaaaaaaaaaaaaaaa")
