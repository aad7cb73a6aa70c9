"""What is wrong with one ticket, machine or budget does not keep the others waiting, and does not go unseen."""

import pytest
from sqlalchemy.exc import DBAPIError

from control.cluster import Cluster
from gpuaas.control.app import budgets as spending
from gpuaas.control.sweeps import budgets, drains, queue
from gpuaas.control.sweeps.each import Turn, each
from gpuaas.kit.errors import Problem, Stale, Taken

DAMAGED = "this row is damaged"


def damage(cluster: Cluster, table: str, column: str, id: str) -> None:
    """Whatever touches this row fails, as it would on a broken page or by a bug of ours."""
    body = f"BEGIN IF NEW.{column} = '{id}' THEN RAISE '{DAMAGED}'; END IF; RETURN NEW; END"
    cluster.sql(f"CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    cluster.sql(f"CREATE TRIGGER damaged BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION damaged()")


def raising(error: Exception) -> Turn:
    def work() -> int:
        raise error

    return "bad", work


def test_everybody_has_their_turn_and_the_first_error_is_raised() -> None:
    done: list[str] = []

    def good(id: str) -> Turn:
        return id, lambda: done.append(id) or 1  # type: ignore[func-returns-value]

    assert each([good("a"), raising(Stale("moved")), raising(Taken("by another")), good("b")]) == 2
    with pytest.raises(ValueError, match="one"):
        each([good("c"), raising(ValueError("one")), good("d"), raising(KeyError("two")), good("e")])
    with pytest.raises(Problem):
        each([good("f"), raising(Problem("store_unavailable", 503, "The database did not answer.")), good("g")])
    assert done == ["a", "b", "c", "d", "e", "f"], "nobody is tried while the database is away"


def test_a_bad_ticket_does_not_stop_the_line(cluster: Cluster) -> None:
    bad, good = cluster.launch("bad", wait=True), cluster.launch("good", wait=True)
    damage(cluster, "allocations", "id", bad)
    cluster.agent(gpus=2)
    with pytest.raises(DBAPIError, match=DAMAGED):
        queue.sweep(cluster.store)
    assert [cluster.allocation(id).state for id in (bad, good)] == ["queued", "provisioning"]


def test_nor_does_one_that_cannot_give_up(cluster: Cluster) -> None:
    bad, good = (cluster.launch(name, wait=True, wait_seconds=1) for name in ("bad", "good"))
    last = cluster.launch("last", wait=True)
    damage(cluster, "allocations", "id", bad)
    cluster.sql("UPDATE queue SET expires_at = now() - interval '1 minute' WHERE expires_at IS NOT NULL")
    cluster.agent()
    with pytest.raises(DBAPIError, match=DAMAGED):
        queue.sweep(cluster.store)
    assert [cluster.allocation(id).state for id in (bad, good, last)] == ["queued", "released", "provisioning"]


def test_nor_does_a_machine_that_cannot_be_released_save_the_others(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    bad, good = sorted(cluster.launch(name) for name in ("one", "other"))
    agent.settle()
    damage(cluster, "allocations", "id", bad)
    cluster.sql(
        "INSERT INTO drains (target_id, node_id, reason, created_by, created_at, deadline)"
        " VALUES (:id, :id, 'fans', :by, now() - interval '1 hour', now() - interval '1 minute')",
        id=agent.node_id,
        by=cluster.caller.user_id,
    )
    with pytest.raises(DBAPIError, match=DAMAGED):
        drains.sweep(cluster.store)
    assert [cluster.allocation(id).state for id in (bad, good)] == ["active", "releasing"]


def test_nor_does_a_budget_keep_the_alerts_of_others_back(cluster: Cluster) -> None:
    agent = cluster.agent()
    cluster.sql("UPDATE offers SET price_micros_per_hour = 1000000000000")
    cluster.launch("a")
    agent.settle()
    cluster.store.transact(spending.set_project, cluster.caller, cluster.project.id, 1)
    cluster.store.transact(spending.set_org, cluster.caller, "home", 1)
    bad, good = (row.id for row in cluster.sql("SELECT id FROM budgets ORDER BY id"))
    damage(cluster, "budget_alerts", "budget_id", bad)
    with pytest.raises(DBAPIError, match=DAMAGED):
        budgets.sweep(cluster.store)
    assert {row.budget_id for row in cluster.sql("SELECT budget_id FROM budget_alerts")} == {good}
