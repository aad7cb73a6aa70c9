"""A reservation is kept: nobody sits there when its time comes, and it becomes a launch, or is given up."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control.cluster import Cluster
from control.operations.test_waiting import states
from gpuaas.control.app import leases, quotas, reservations
from gpuaas.control.app import slots as fleet
from gpuaas.control.store.reservations import by_id
from gpuaas.control.sweeps import preemptions, queue
from gpuaas.control.sweeps import reservations as sweep
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.model.reservation import TAIL, Reservation
from gpuaas.wire.api import LeaseRequest


class Set(SystemClock):
    """Moved by hand."""

    def __init__(self) -> None:
        self.moment = datetime.now(UTC).replace(microsecond=0)

    def now(self) -> datetime:
        return self.moment

    def pass_(self, **more: float) -> None:
        self.moment += timedelta(**more)


@pytest.fixture
def clock(cluster: Cluster) -> Set:
    cluster.store.clock = Set()
    return cluster.store.clock


def book(cluster: Cluster, clock: Set, name: str = "demo", *, hours: float = 4, length: float = 2, **more: Any) -> Any:
    starts = clock.now() + timedelta(hours=hours)
    asked = {"offer": "h100-1", "count": 1, "launch": None, "keys": None, **more}
    return cluster.store.transact(
        reservations.book, cluster.caller, name, asked["offer"], None, asked["count"], starts,
        starts + timedelta(hours=length), asked["launch"], asked["keys"],
    )  # fmt: skip


def now(cluster: Cluster, made: Reservation) -> Reservation:
    found = cluster.store.transact(by_id, made.id)
    assert found is not None
    return found


def leased(hours: float) -> LeaseRequest:
    return LeaseRequest(max_duration_seconds=int(hours * 3600))


def events(cluster: Cluster, type: str) -> list[Any]:
    return cluster.sql("SELECT data FROM events WHERE type = :type ORDER BY seq", type=type)


def test_only_who_is_gone_in_time_gets_a_reserved_slot(cluster: Cluster, clock: Set) -> None:
    agent = cluster.agent("a", gpus=1)
    made = book(cluster, clock)
    for lease in (None, leased(3.5)):
        with pytest.raises(Problem, match="reserved before the machine would be gone"):
            cluster.launch("late", lease=lease)
    short = cluster.launch("short", lease=leased(2))
    agent.settle()
    assert sweep.sweep(cluster.store) == 0, "it will be gone"
    with pytest.raises(Problem, match="Its place is reserved from") as refused:
        cluster.store.transact(leases.extend, cluster.caller, short, 2 * 3600)
    assert refused.value.extra["latest"] == (made.starts_at - TAIL).isoformat()
    cluster.store.transact(leases.extend, cluster.caller, short, 1800)
    assert cluster.sql("SELECT free_slots FROM capacity")[0].free_slots == 0


def test_conflicts_are_refused_with_the_next_free_window(cluster: Cluster, clock: Set) -> None:
    cluster.agent("a", gpus=1)
    made = book(cluster, clock)
    with pytest.raises(Problem, match="no room in that window") as refused:
        book(cluster, clock, "again", hours=5)
    assert refused.value.extra["nearest"]["starts_at"] == made.free_at.isoformat()
    assert book(cluster, clock, "after", hours=4 + 2 + TAIL.total_seconds() / 3600).state == "booked"
    assert book(cluster, clock, "before", hours=0.5, length=2).state == "booked"
    with pytest.raises(Problem, match="has a reservation 'demo'"):
        book(cluster, clock, hours=20)
    for window in ({"hours": -1}, {"length": 0.1}, {"length": 24 * 31}, {"hours": 24 * 91}):
        with pytest.raises(Problem):
            book(cluster, clock, "bad", **window)


def test_whoever_stays_is_not_booked_over(cluster: Cluster, clock: Set) -> None:
    agent = cluster.agent("a", gpus=2)
    cluster.launch("stays")
    cluster.launch("goes", lease=leased(3))
    agent.settle()
    with pytest.raises(Problem, match="no room"):
        book(cluster, clock, count=2)
    with pytest.raises(Problem, match="no room"):
        book(cluster, clock, hours=3.5)
    assert book(cluster, clock, hours=4).state == "booked"


def test_it_launches_by_itself_when_it_begins_and_ends_with_its_window(cluster: Cluster, clock: Set) -> None:
    agent = cluster.agent("a", gpus=3)
    made = book(cluster, clock, count=2, launch="run")
    clock.pass_(hours=4, seconds=-1)
    assert sweep.sweep(cluster.store) == 0
    clock.pass_(seconds=1)
    assert sweep.sweep(cluster.store) == 1
    agent.settle()
    rows = cluster.sql("SELECT a.name, a.state, l.ends_at FROM allocations a JOIN leases l ON l.allocation_id = a.id")
    assert sorted(rows) == [("run-0", "active", made.ends_at), ("run-1", "active", made.ends_at)]
    assert (now(cluster, made).state, cluster.sql("SELECT * FROM bookings")) == ("used", [])
    assert cluster.sql("SELECT free_slots FROM capacity")[0].free_slots == 1
    (entry,) = cluster.sql("SELECT actor, data FROM audit WHERE action = 'allocation.launch'")
    assert (entry.actor, entry.data["reservation"]) == ("system", "demo")


def test_its_holder_launches_it(cluster: Cluster, clock: Set) -> None:
    agent = cluster.agent("a", gpus=1)
    made = book(cluster, clock)
    with pytest.raises(Problem, match="begins at"):
        cluster.launch("early", reservation="demo")
    clock.pass_(hours=4)
    sweep.sweep(cluster.store)
    assert [row.data["name"] for row in events(cluster, "reservation.ready")] == ["demo"]
    with pytest.raises(Problem, match="another launch than this"):
        cluster.launch("two", reservation="demo", count=2)
    with pytest.raises(Problem, match="Nothing fits"):
        cluster.launch("somebody-else")
    id = cluster.launch("run", reservation="demo", lease=leased(1))
    agent.settle()
    assert (states(cluster, id), now(cluster, made).state) == (["active"], "used")
    ends = cluster.sql("SELECT ends_at FROM leases")[0].ends_at
    assert ends == clock.now() + timedelta(hours=1), "shorter is allowed"


def test_nobody_comes(cluster: Cluster, clock: Set) -> None:
    cluster.agent("a", gpus=1)
    made = book(cluster, clock)
    clock.pass_(hours=4)
    sweep.sweep(cluster.store)
    clock.pass_(minutes=14)
    sweep.sweep(cluster.store)
    assert now(cluster, made).state == "booked"
    waits = cluster.launch("waits", wait=True)
    clock.pass_(minutes=2)
    sweep.sweep(cluster.store)
    assert now(cluster, made).state == "expired"
    assert queue.sweep(cluster.store) == 1
    assert states(cluster, waits) == ["provisioning"]


def test_it_is_over_with_its_window_whether_or_not_anybody_looked(cluster: Cluster, clock: Set) -> None:
    cluster.agent("a", gpus=1)
    made = book(cluster, clock)
    clock.pass_(hours=6)
    with pytest.raises(Problem, match="is over"):
        cluster.launch("late", reservation="demo")
    sweep.sweep(cluster.store)
    assert now(cluster, made).state == "expired"


def test_cancelled_it_is_everybodys_again(cluster: Cluster, clock: Set) -> None:
    cluster.agent("a", gpus=1)
    made = book(cluster, clock)
    with pytest.raises(Problem, match="must repeat its name"):
        cluster.store.transact(reservations.cancel, cluster.caller, "demo", "x")
    cluster.store.transact(reservations.cancel, cluster.caller, "demo", "demo")
    assert now(cluster, made).state == "cancelled"
    cluster.launch("stays")
    with pytest.raises(Problem, match="is cancelled"):
        cluster.store.transact(reservations.cancel, cluster.caller, made.id, "demo")


def test_it_moves_to_another_node_or_warns(cluster: Cluster, clock: Set) -> None:
    one, other = cluster.agent("a", gpus=1), cluster.agent("b", gpus=1)
    made = book(cluster, clock)
    (where,) = cluster.sql("SELECT node_id FROM bookings")
    first, second = (one, other) if where.node_id == one.node_id else (other, one)
    cluster.store.transact(fleet.drain, cluster.caller, first.name, None, "fans", None)
    sweep.sweep(cluster.store)
    (where,) = cluster.sql("SELECT node_id FROM bookings")
    assert where.node_id == second.node_id
    assert events(cluster, "reservation.at_risk") == []
    cluster.store.transact(fleet.drain, cluster.caller, second.name, None, "fans", None)
    for _ in range(2):
        sweep.sweep(cluster.store)
    (said,) = events(cluster, "reservation.at_risk")
    assert "somebody will work on it" in said.data["reason"]
    assert now(cluster, made).trouble
    cluster.store.transact(fleet.undrain, cluster.caller, first.name, None)
    sweep.sweep(cluster.store)
    assert len(events(cluster, "reservation.safe")) == 1
    assert now(cluster, made).trouble is None


def test_quota_counts_what_is_reserved(cluster: Cluster, clock: Set) -> None:
    cluster.agent("a", gpus=4)
    cluster.store.transact(quotas.set_project, cluster.caller, cluster.project.id, "gpus", 2)
    book(cluster, clock, launch="run")
    cluster.launch("stays")
    with pytest.raises(Problem, match="with what is reserved, 2 of 2 GPUs"):
        cluster.launch("too-much")
    cluster.launch("short", lease=leased(1))
    with pytest.raises(Problem, match="Over quota in that time"):
        book(cluster, clock, "more", hours=5)
    assert book(cluster, clock, "later", hours=12).state == "booked"
    clock.pass_(hours=4)
    sweep.sweep(cluster.store)
    assert cluster.sql("SELECT * FROM allocations WHERE name = 'run'") == [], "the short one was never released"
    assert "GPUs" in cluster.sql("SELECT trouble FROM reservations WHERE name = 'demo'")[0].trouble


def test_preemptible_machines_use_it_until_then(cluster: Cluster, clock: Set) -> None:
    agent = cluster.agent("a", gpus=1)
    book(cluster, clock, launch="run")
    spot = cluster.launch("spot", preemptible=True)
    agent.settle()
    clock.pass_(hours=3, minutes=48)
    sweep.sweep(cluster.store)
    assert events(cluster, "preemption.warning") == []
    clock.pass_(minutes=1)
    sweep.sweep(cluster.store)
    assert [row.data["name"] for row in events(cluster, "preemption.warning")] == ["spot"]
    assert events(cluster, "reservation.at_risk") == []
    clock.pass_(minutes=5)
    preemptions.sweep(cluster.store)
    agent.settle()
    assert states(cluster, spot) == ["released"]
    with pytest.raises(Problem, match="Nothing fits"):
        cluster.launch("backfill", preemptible=True)
    clock.pass_(minutes=6)
    sweep.sweep(cluster.store)
    assert [row.state for row in cluster.sql("SELECT state FROM allocations WHERE name = 'run'")] == ["provisioning"]


def test_preemptible_machines_give_way_when_its_place_is_lost(cluster: Cluster, clock: Set) -> None:
    one, other = cluster.agent("a", gpus=1), cluster.agent("b", gpus=1)
    made = book(cluster, clock, hours=0.25)
    (where,) = cluster.sql("SELECT node_id FROM bookings")
    mine, rest = (one, other) if where.node_id == one.node_id else (other, one)
    spot = cluster.launch("spot", preemptible=True)
    rest.settle()
    assert cluster.allocation(spot).node_id == rest.node_id
    clock.pass_(minutes=10)
    cluster.store.transact(fleet.drain, cluster.caller, mine.name, None, "fans", None)
    sweep.sweep(cluster.store)
    assert [row.data["name"] for row in events(cluster, "preemption.warning")] == ["spot"]
    assert cluster.sql("SELECT node_id FROM bookings")[0].node_id == rest.node_id
    clock.pass_(minutes=5)
    preemptions.sweep(cluster.store)
    rest.settle()
    sweep.sweep(cluster.store)
    cluster.launch("run", reservation=made.name)
    assert now(cluster, made).state == "used"
