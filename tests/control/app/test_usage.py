"""The ledger over a real store: what costs, until when, and that nobody can change it afterwards."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.app import budgets, prices, statements, usage
from gpuaas.control.store import nodes
from gpuaas.control.sweeps import budgets as budget_sweep
from gpuaas.control.sweeps import lost_nodes
from gpuaas.control.sweeps import statements as statement_sweep
from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.errors import Problem
from gpuaas.model.price import Prices
from gpuaas.model.usage import Line, total
from gpuaas.wire.node import Heartbeat

NOON = datetime(2030, 3, 5, 12, tzinfo=UTC)
HOUR = 3600.0


@pytest.fixture
def clock(cluster: Cluster) -> VirtualClock:
    made = VirtualClock(NOON)
    cluster.store.clock = made
    cluster.store.since = made.now()
    return made


@pytest.fixture
def agent(cluster: Cluster, clock: VirtualClock) -> Agent:
    return cluster.agent(gpus=8)


def heard(cluster: Cluster, agent: Agent) -> None:
    cluster.store.transact(nodes.seen, agent.node_id)


def used(cluster: Cluster, begin: datetime = NOON, end: datetime = NOON + timedelta(days=1)) -> list[Line]:
    return cluster.store.transact(usage.of_project, cluster.caller, "lab", begin, end)[1]


def book(cluster: Cluster, valid_from: datetime | None = None, **offers: int) -> int:
    named = {name.replace("_", "-"): micros for name, micros in offers.items()}
    return cluster.store.transact(prices.publish, cluster.caller, Prices(named), valid_from, "").version


def test_nothing_costs_before_it_is_active_and_a_restart_does_not_interrupt(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    id = cluster.launch()
    clock.advance(100)
    assert used(cluster) == []
    agent.settle()
    clock.advance(HOUR / 2)
    cluster.restart(id)
    clock.advance(60)
    agent.settle()
    clock.advance(HOUR / 2 - 60)
    cluster.release(id)
    clock.advance(HOUR)
    agent.settle()
    (line,) = used(cluster)
    assert (line.amount_micros, line.gpu_microseconds) == (2_500_000, 3_600_000_000)
    assert (line.offer, line.user_id, line.price_book) == ("h100-1", cluster.caller.user_id, None)


def test_counting_ends_when_the_node_was_last_heard_and_never_goes_on_by_itself(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    """A machine whose node burns down: not a second more, however long it takes somebody to notice or to release it."""
    id = cluster.launch()
    agent.settle()
    clock.advance(HOUR)
    heard(cluster, agent)
    clock.advance(10 * HOUR)
    lost_nodes.sweep(cluster.store)
    assert cluster.allocation(id).state == "unreachable"
    clock.advance(5 * HOUR)
    cluster.release(id)
    clock.advance(50 * HOUR)
    found = used(cluster, NOON, NOON + timedelta(days=30))
    assert [(line.amount_micros, line.ended_at) for line in found] == [(2_500_000, NOON + timedelta(hours=1))]
    told = cluster.sql("SELECT data FROM events WHERE type = 'allocation.unreachable'")
    assert told[0].data["since"] == (NOON + timedelta(hours=1)).isoformat()


def test_another_machine_of_the_same_name_within_the_hour_is_charged_as_what_it_is(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    first = cluster.launch("train")
    agent.settle()
    clock.advance(HOUR / 4)
    cluster.release(first)
    agent.settle()
    second = cluster.launch("train", offer="h100-4")
    agent.settle()
    clock.advance(HOUR / 4)
    cluster.release(second)
    clock.advance(HOUR)
    found = used(cluster)
    assert [(line.offer, line.amount_micros) for line in found] == [("h100-1", 625_000), ("h100-4", 2_500_000)]
    assert total(found).gpu_microseconds == (1 + 4) * 900_000_000
    gpus = [row.gpus for row in cluster.sql("SELECT gpus FROM usage ORDER BY started_at")]
    assert [len(each) for each in gpus] == [1, 4]


def test_what_comes_back_as_something_else_is_charged_as_that_from_then_on(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    cluster.launch()
    agent.settle()
    clock.advance(600)
    heard(cluster, agent)
    clock.advance(60)
    lost_nodes.sweep(cluster.store)
    cluster.sql("UPDATE offers SET price_micros_per_hour = 36000000 WHERE slug = 'h100-1'")
    agent.send(Heartbeat(9, agent.session.epoch, agent.store_id, agent.revision))  # type: ignore[union-attr,arg-type]
    lost_nodes.sweep(cluster.store)
    clock.advance(600)
    assert [line.amount_micros for line in used(cluster)] == [416_667, 6_000_000]


def test_prices_that_change_while_a_machine_runs(cluster: Cluster, agent: Agent, clock: VirtualClock) -> None:
    cluster.launch()
    agent.settle()
    clock.advance(HOUR)
    assert book(cluster, h100_1=1_000_000) == 1
    assert book(cluster, NOON + timedelta(hours=3), h100_1=4_000_000) == 2
    clock.advance(3 * HOUR)
    found = used(cluster)
    assert [(line.price_book, line.amount_micros) for line in found] == [
        (None, 2_500_000),
        (1, 2_000_000),
        (2, 4_000_000),
    ]
    assert len(cluster.sql("SELECT id FROM usage")) == 1
    with pytest.raises(Problem, match="past"):
        book(cluster, clock.now() - timedelta(seconds=1), h100_1=1)
    with pytest.raises(Problem, match="h200"):
        book(cluster, h200=1)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE usage SET ended_at = ended_at + interval '1 hour'",
        "UPDATE usage SET started_at = started_at - interval '1 hour'",
        "UPDATE usage SET terms = '{}'",
        "DELETE FROM usage",
        "UPDATE price_books SET prices = '{}'",
        "DELETE FROM price_books",
        "UPDATE corrections SET reason = 'none'",
        "DELETE FROM corrections",
        "DELETE FROM statements",
    ],
)
def test_the_database_refuses_to_edit_what_was_written(
    cluster: Cluster, agent: Agent, clock: VirtualClock, statement: str
) -> None:
    id = cluster.launch()
    agent.settle()
    book(cluster, h100_1=1)
    clock.advance(HOUR)
    cluster.release(id)
    usage_id = used(cluster)[0].usage_id
    cluster.store.transact(usage.correct, cluster.caller, usage_id, None, NOON + timedelta(minutes=1), "a test")
    clock.advance(40 * 24 * HOUR)
    assert statement_sweep.sweep(cluster.store) == 1
    with pytest.raises(IntegrityError, match="append-only"):
        cluster.sql(statement)


def test_a_correction_is_a_new_entry_and_no_time_is_given_back_twice(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    id = cluster.launch()
    agent.settle()
    clock.advance(2 * HOUR)
    (running,) = used(cluster)

    def correct(begin: float | None, end: float | None) -> None:
        first, last = (None if at is None else NOON + timedelta(hours=at) for at in (begin, end))
        cluster.store.transact(usage.correct, cluster.caller, running.usage_id, first, last, "slow")

    with pytest.raises(Problem, match="still being counted"):
        correct(None, None)
    cluster.release(id)
    correct(0.5, 1.0)
    for again in ((None, None), (0.75, 1.5), (-1.0, 0.2), (1.5, 2.5), (1.5, 1.5)):
        with pytest.raises(Problem):
            correct(*again)
    correct(1.0, None)
    assert total(used(cluster)).amount_micros == 1_250_000
    assert [row.type for row in cluster.sql("SELECT type FROM events WHERE type LIKE 'usage.%'")] == [
        "usage.corrected"
    ] * 2


def test_a_statement_is_closed_when_nothing_can_change_and_says_the_same_for_ever(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    id = cluster.launch()
    agent.settle()
    april, may = datetime(2030, 4, 1, tzinfo=UTC), datetime(2030, 5, 1, tzinfo=UTC)
    clock.advance((april - timedelta(minutes=1) - clock.now()).total_seconds())
    heard(cluster, agent)
    clock.advance(2 * HOUR)
    assert statement_sweep.sweep(cluster.store) == 0  # the node may have died at half past eleven
    heard(cluster, agent)
    assert statement_sweep.sweep(cluster.store) == 1
    assert statement_sweep.sweep(cluster.store) == 0
    closed = cluster.store.transact(statements.show, cluster.caller, "lab", NOON)
    assert (closed.intact, closed.ends_at) == (True, april)
    seconds = int((april - NOON).total_seconds())
    assert closed.closed is not None
    assert closed.closed.amount_micros == seconds * 2_500_000 // 3600
    book(cluster, h100_1=99_000_000)
    cluster.release(id)
    cluster.store.transact(usage.correct, cluster.caller, closed.lines[0].usage_id, NOON, april, "a gift")
    clock.advance((may - clock.now()).total_seconds() + 2 * HOUR)
    assert statement_sweep.sweep(cluster.store) == 1
    again = cluster.store.transact(statements.show, cluster.caller, "lab", NOON)
    assert again == closed
    month = cluster.store.transact(statements.show, cluster.caller, "lab", april)
    assert month.intact
    assert total(month.lines).amount_micros < 0  # the gift is in the month in which it was given
    cluster.sql("ALTER TABLE usage DISABLE TRIGGER closed_for_good")
    cluster.sql("UPDATE usage SET ended_at = ended_at, started_at = started_at + interval '1 second'")
    assert cluster.store.transact(statements.show, cluster.caller, "lab", NOON).intact is False


def test_a_month_that_nobody_closed_is_made_up_for_in_order(
    cluster: Cluster, agent: Agent, clock: VirtualClock
) -> None:
    id = cluster.launch()
    agent.settle()
    clock.advance(HOUR)
    cluster.release(id)
    clock.advance(100 * 24 * HOUR)
    assert statement_sweep.sweep(cluster.store) == 3
    listed = cluster.store.transact(statements.list_statements, cluster.caller, "lab")
    assert [(item.starts_at.month, item.amount_micros) for item in listed] == [(5, 0), (4, 0), (3, 2_500_000)]


def test_budgets_tell_once_at_each_step(cluster: Cluster, agent: Agent, clock: VirtualClock) -> None:
    cluster.store.transact(budgets.set_project, cluster.caller, "lab", 10_000_000)
    cluster.store.transact(budgets.set_org, cluster.caller, "home", 20_000_000)
    cluster.launch()
    agent.settle()

    def told() -> list[tuple[str, int]]:
        budget_sweep.sweep(cluster.store)
        rows = cluster.sql("SELECT data FROM events WHERE type = 'budget.alert' ORDER BY seq")
        return [(row.data["of"], row.data["percent"]) for row in rows]

    assert told() == []
    clock.advance(2 * HOUR)
    assert told() == [("project", 50)]
    assert told() == [("project", 50)]
    clock.advance(2 * HOUR)
    assert sorted(told()) == [("org", 50), ("project", 50), ("project", 80), ("project", 100)]
    cluster.store.transact(budgets.set_project, cluster.caller, "lab", 12_000_000)
    assert sorted(told())[1:] == [("project", 50), ("project", 50), ("project", 80), ("project", 80), ("project", 100)]
    standing = cluster.store.transact(budgets.of_project, cluster.caller, "lab")
    assert (standing.spent_micros, standing.alerts) == (10_000_000, [50, 80])
    before = len(told())
    clock.advance(27 * 24 * HOUR)  # April: a new month begins at nothing
    assert len(told()) == before + 6
    cluster.store.transact(budgets.set_project, cluster.caller, "lab", None)
    assert cluster.store.transact(budgets.of_project, cluster.caller, "lab").amount_micros is None
