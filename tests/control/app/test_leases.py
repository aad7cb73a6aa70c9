"""Leases over a real store: told, stopped, released, extended; never early, and never against the project's policy."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from sqlalchemy import make_url

from control.cluster import Cluster
from control.fleet import sample
from gpuaas.control.app import allocations as verbs
from gpuaas.control.app import identity as people
from gpuaas.control.app import leases as leasing
from gpuaas.control.app import usage
from gpuaas.control.app.streams import dials
from gpuaas.control.store import identity, leases, nodes
from gpuaas.control.store.transaction import CHANNEL, Tx
from gpuaas.control.sweeps import leases as sweep
from gpuaas.control.sweeps import lost_nodes
from gpuaas.kit.clock import SteadyClock, VirtualClock
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.usage import total
from gpuaas.wire.api import LeaseRequest
from gpuaas.wire.node import Fact, GpuSample, Heartbeat, Notice, from_server

NOON = datetime(2030, 3, 5, 12, tzinfo=UTC)
HOUR, MINUTE = 3600.0, 60.0


class Leased:
    """A cluster with a clock of its own, whose sweep runs every minute, and a node that is always heard."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clock = VirtualClock(NOON)
        cluster.store.clock = self.clock
        cluster.store.since = NOON
        self.agent = cluster.agent(gpus=4)
        self.use: dict[str, dict[str, Any]] = {}
        self.cpus, self.cpu_seconds = 0.0, 0.0  # that machines use, and have used

    def launch(self, name: str = "a", **lease: int) -> str:
        more = {"lease": LeaseRequest(**lease)} if lease else {}
        id = self.cluster.launch(name, **more)
        self.agent.settle()
        return id

    def passes(self, seconds: float, step: float = MINUTE) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.cluster.store.transact(nodes.seen, self.agent.node_id)
            self.cpu_seconds += self.cpus * step
            for id, use in self.use.items():
                self.agent.sample(sample(id, self.clock.now().timestamp(), cpu_seconds=self.cpu_seconds, **use))
            sweep.sweep(self.cluster.store)
            self.agent.settle()

    def told(self, type: str = "lease.%") -> list[tuple[str, float]]:
        """What was said when, in minutes since noon."""
        rows = self.cluster.sql(f"SELECT type, at FROM events WHERE type LIKE '{type}' ORDER BY seq")
        return [(row.type, (row.at - NOON).total_seconds() / 60) for row in rows]

    def state(self, id: str) -> str:
        return self.cluster.allocation(id).state

    def extend(self, id: str, seconds: float, caller: Caller | None = None) -> Any:
        """By an admin of the project, unless somebody else is named."""
        return self.cluster.store.transact(leasing.extend, caller or self.cluster.caller, id, int(seconds))

    def member(self) -> Caller:
        def work(tx: Tx) -> Caller:
            user = identity.insert_user(tx, "member@example.org", "member", None, None)
            people.set_member(tx, self.cluster.caller, "lab", user.id, "editor")
            return Caller(user.id, user.email, user.name, None, "", ("*",))

        return self.cluster.store.transact(work)

    def policy(self, **limits: Any) -> None:
        wanted = {"idle_seconds": None, "idle_gpu_percent": 5, "max_seconds": None, **limits}
        self.cluster.store.transact(leasing.set_policy, self.cluster.caller, "lab", **wanted)


@pytest.fixture
def world(cluster: Cluster) -> Leased:
    return Leased(cluster)


def test_it_is_told_twice_then_stopped_then_released(world: Leased) -> None:
    id = world.launch(max_duration_seconds=8 * 3600)
    world.passes(7.5 * HOUR)
    assert (world.state(id), world.told()) == ("active", [("lease.warning", 420.0)])
    world.passes(29 * MINUTE)
    assert world.state(id) == "active"
    world.passes(5 * MINUTE)
    assert world.state(id) == "stopped"
    assert world.agent.specs[id].body is not None
    assert world.agent.specs[id].body.stopped
    world.passes(1 * HOUR)
    assert world.told() == [
        ("lease.warning", 420.0),
        ("lease.warning", 470.0),
        ("lease.ended", 480.0),
        ("lease.released", 510.0),
    ]
    assert world.state(id) == "released"
    (entry,) = world.cluster.sql("SELECT * FROM audit WHERE action = 'allocation.release'")
    assert (entry.actor, entry.object_id, entry.data["reason"]) == ("system", id, "its lease is over")
    _, lines = world.cluster.store.transact(
        usage.of_project, world.cluster.caller, "lab", NOON, NOON + timedelta(days=1)
    )
    assert total(lines).microseconds == 8 * 3600 * 1_000_000  # what was stopped does not cost


def test_a_stopped_machine_comes_back_when_it_is_extended(world: Leased) -> None:
    id = world.launch(max_duration_seconds=2 * 3600)
    world.passes(2 * HOUR + 20 * MINUTE)
    assert world.state(id) == "stopped"
    with pytest.raises(Problem) as refused:
        world.cluster.restart(id)
    assert refused.value.code == "not_in_this_state"
    before = world.cluster.allocation(id)
    after, operation = world.extend(id, 3 * HOUR)
    assert (after.state, operation.kind) == ("restarting", "restart")
    world.agent.settle()
    assert world.state(id) == "active"
    assert not world.agent.specs[id].body.stopped  # type: ignore[union-attr]
    assert (before.seat, before.host_key) == (world.cluster.allocation(id).seat, world.cluster.allocation(id).host_key)
    world.passes(3 * HOUR - 2 * MINUTE)
    assert world.state(id) == "active"
    world.passes(4 * MINUTE)
    assert world.state(id) == "stopped"


def test_extending_in_time_moves_the_end_and_warnings_come_again(world: Leased) -> None:
    id = world.launch(max_duration_seconds=2 * 3600)
    world.passes(1 * HOUR + 55 * MINUTE)
    assert len(world.told("lease.warning")) == 2
    world.extend(id, 2 * HOUR)
    world.passes(2 * HOUR)
    assert world.state(id) == "active"
    assert [minutes for _, minutes in world.told("lease.warning")] == [60.0, 110.0, 180.0, 230.0]


def test_a_change_of_a_stopped_machine_that_fails_does_not_leave_it_stopped_for_good(world: Leased) -> None:
    id = world.launch(max_duration_seconds=3600)
    world.passes(70 * MINUTE)
    assert world.state(id) == "stopped"
    world.extend(id, HOUR)
    world.agent.settle(failing=frozenset({"a"}))
    assert world.state(id) in ("restarting", "failed")
    good = world.cluster.sql("SELECT good FROM specs")[0].good
    assert good["stopped"] is False


def test_what_does_not_run_is_released_all_the_same(world: Leased) -> None:
    """A node that is silent for good: the release is carried out when it is back."""
    id = world.launch(max_duration_seconds=3600)
    world.clock.advance(30)
    lost_nodes.sweep(world.cluster.store)
    assert world.state(id) == "unreachable"
    for _ in range(120):
        world.clock.advance(MINUTE)
        sweep.sweep(world.cluster.store)
    assert world.state(id) == "releasing"


def test_what_comes_back_after_its_time_is_stopped_too(world: Leased) -> None:
    """It was unreachable when its lease ended; the grace is counted from then."""
    id = world.launch(max_duration_seconds=3600)
    world.clock.advance(30)
    lost_nodes.sweep(world.cluster.store)
    for _ in range(65):
        world.clock.advance(MINUTE)
        sweep.sweep(world.cluster.store)
    assert world.told()[-1][0] == "lease.ended"
    session = world.agent.session
    assert session is not None
    world.agent.send(Heartbeat(99, session.epoch, world.agent.store_id or "", world.agent.revision))
    lost_nodes.sweep(world.cluster.store)
    assert world.state(id) == "active"
    world.passes(2 * MINUTE)
    assert world.state(id) == "stopped"
    world.passes(30 * MINUTE)
    assert world.state(id) == "released"


@pytest.mark.parametrize("away", [timedelta(hours=1), timedelta(days=1), timedelta(days=40)])
def test_nobody_skips_a_warning_because_time_was_away(world: Leased, away: timedelta) -> None:
    """Servers that were down, or that start with a clock that is a day ahead: at least ten minutes and the grace."""
    id = world.launch(max_duration_seconds=4 * 3600)
    world.passes(10 * MINUTE)
    world.clock.advance(away.total_seconds() + 4 * HOUR)
    world.passes(9 * MINUTE)
    assert world.state(id) == "active"
    assert len(world.told("lease.warning")) == 1
    world.passes(3 * MINUTE)
    assert world.state(id) == "stopped"
    world.passes(28 * MINUTE)
    assert world.state(id) == "stopped"


def test_nothing_ends_while_the_clocks_do_not_agree(world: Leased) -> None:
    """Counted on from 2030, while the database lives in its own year: a jump of years."""
    id = world.launch(max_duration_seconds=3600)
    world.passes(58 * MINUTE)
    world.cluster.store.clock = SteadyClock(world.clock.now(), world.clock)
    world.passes(4 * HOUR)
    assert world.state(id) == "active"
    assert not world.cluster.store.clock_agrees
    world.cluster.store.clock = world.clock
    world.passes(1 * MINUTE)
    assert world.state(id) == "stopped"


BUSY = {"gpus": [GpuSample("GPU-1", 50.0)]}
QUIET = {"gpus": [GpuSample("GPU-1", 1.0)]}


def test_a_machine_that_does_nothing_ends(world: Leased) -> None:
    world.policy(idle_seconds=7200)
    id = world.launch()
    world.use[id] = BUSY
    world.passes(5 * HOUR)
    assert world.told("lease.warning") == []
    world.use[id] = QUIET
    world.passes(1 * HOUR + 2 * MINUTE)
    assert len(world.told("lease.warning")) == 1
    world.use[id] = BUSY
    world.passes(2 * MINUTE)
    world.use[id] = QUIET
    world.passes(1 * HOUR + 57 * MINUTE)
    assert world.state(id) == "active"
    world.passes(6 * MINUTE)
    assert world.state(id) == "stopped"
    ended = world.cluster.sql("SELECT data FROM events WHERE type = 'lease.ended'")
    assert ended[0].data["reason"] == "idle"


def test_of_a_machine_without_gpus_the_cpus_tell(world: Leased) -> None:
    """One of 4 CPUs is at work; later a program looks for something to do every now and then."""
    world.policy(idle_seconds=1800)
    id = world.launch()
    world.use[id], world.cpus = {}, 1.0
    world.passes(3 * HOUR)
    assert (world.state(id), world.told("lease.warning")) == ("active", [])
    world.cpus = 0.02
    world.passes(33 * MINUTE)
    assert world.state(id) == "stopped"


def test_of_a_machine_with_gpus_the_cpus_say_nothing(world: Leased) -> None:
    world.policy(idle_seconds=1800)
    id = world.launch()
    world.use[id], world.cpus = QUIET, 4.0
    world.passes(33 * MINUTE)
    assert world.state(id) == "stopped"


@pytest.mark.parametrize(
    "use",
    [{"gpus": [GpuSample("GPU-1", None)]}, {**QUIET, "sessions": 1}, None],
    ids=["unknown", "session", "unmeasured"],
)
def test_what_is_not_known_to_be_idle_is_not(world: Leased, use: dict[str, Any] | None) -> None:
    world.policy(idle_seconds=1800)
    id = world.launch()
    if use is not None:
        world.use[id] = use
    world.passes(3 * HOUR)
    assert (world.state(id), world.told("lease.warning")) == ("active", [])


@pytest.mark.parametrize("measured_before_the_look", [False, True])
def test_what_it_did_in_the_last_moment_counts(world: Leased, measured_before_the_look: bool) -> None:
    """Also when somebody looked less than half a minute ago, and when a measurement comes after the look it was for."""
    world.policy(idle_seconds=1800)
    id = world.launch()
    world.use[id] = QUIET
    world.passes(29 * MINUTE)

    def in_seconds(seconds: float) -> None:
        world.clock.advance(seconds)
        world.cluster.store.transact(nodes.seen, world.agent.node_id)

    in_seconds(50)
    sweep.sweep(world.cluster.store)
    in_seconds(5)
    now = world.clock.now().timestamp()
    world.agent.sample(sample(id, now - 7 if measured_before_the_look else now, **BUSY))
    in_seconds(10)
    world.agent.sample(sample(id, world.clock.now().timestamp(), **QUIET))
    sweep.sweep(world.cluster.store)
    assert (world.state(id), world.told("lease.ended")) == ("active", [])
    world.passes(40 * MINUTE)
    assert world.state(id) == "stopped"


def test_a_machine_on_a_silent_node_is_not_known_to_be_idle(world: Leased) -> None:
    world.policy(idle_seconds=1800)
    id = world.launch()
    world.use[id] = QUIET
    world.passes(22 * MINUTE)
    assert len(world.told("lease.warning")) == 1
    for _ in range(40):
        world.clock.advance(MINUTE)
        lost_nodes.sweep(world.cluster.store)
        sweep.sweep(world.cluster.store)
    assert (world.state(id), world.told("lease.ended")) == ("unreachable", [])


def test_an_open_login_is_a_sign_of_life(world: Leased) -> None:
    world.policy(idle_seconds=1800)
    id = world.launch()
    world.use[id] = QUIET
    login = {"session": "s1", "user_id": world.cluster.caller.user_id, "fingerprint": "SHA256:x", "source": "192.0.2.1"}
    world.agent.report(facts=[Fact(1, "session.opened", id, world.clock.now().timestamp(), login)])
    world.passes(2 * HOUR)
    assert world.state(id) == "active"
    ended = {"session": "s1", "reason": "left"}
    world.agent.report(facts=[Fact(2, "session.closed", id, world.clock.now().timestamp(), ended)])
    world.passes(40 * MINUTE)
    assert world.state(id) == "stopped"


def test_a_user_can_ask_for_less_than_the_project_allows_and_not_for_more(world: Leased) -> None:
    world.policy(idle_seconds=3600, max_seconds=7200)
    with pytest.raises(Problem) as refused:
        world.launch(max_duration_seconds=7201)
    assert refused.value.code == "lease_too_long"
    asked_for_more = world.launch("a", idle_seconds=20 * 3600)
    asked_for_less = world.launch("b", idle_seconds=1200)
    world.use = {asked_for_more: QUIET, asked_for_less: QUIET}
    world.passes(30 * MINUTE)
    assert (world.state(asked_for_more), world.state(asked_for_less)) == ("active", "stopped")
    world.passes(35 * MINUTE)
    assert world.state(asked_for_more) == "stopped"
    found = world.cluster.store.transact(leases.lease, asked_for_more)
    assert found.max_seconds == 7200  # nothing was asked for, so it is the most that is allowed


def test_repeated_extensions_come_to_no_more_than_the_project_allows(world: Leased) -> None:
    world.policy(max_seconds=4 * 3600)
    id, member = world.launch(max_duration_seconds=3600), world.member()
    world.passes(10 * MINUTE)
    for _ in range(3):
        world.extend(id, HOUR, member)
    with pytest.raises(Problem, match="4 h 0 min in all") as refused:
        world.extend(id, HOUR, member)
    assert refused.value.code == "lease_too_long"
    world.passes(2 * HOUR)
    with pytest.raises(Problem, match="in all"):
        world.extend(id, HOUR, member)
    world.extend(id, 5 * HOUR)
    assert world.cluster.store.transact(leases.lease, id).ends_at == NOON + timedelta(hours=9)


def test_a_member_cannot_extend_the_idle_rule_away(world: Leased) -> None:
    world.policy(idle_seconds=3600)
    member, ruled, own = world.member(), world.launch("ruled"), world.launch("own", max_duration_seconds=9 * 3600)
    world.use = {ruled: QUIET, own: QUIET}
    for minute in range(0, 58, 10):
        world.passes(10 * MINUTE)
        if minute < 50:
            world.extend(own, MINUTE, member)
            with pytest.raises(Problem, match="does not change when") as refused:
                world.extend(ruled, HOUR, member)
            assert refused.value.code == "idle_rule"
    world.passes(5 * MINUTE)
    assert [world.state(id) for id in (ruled, own)] == ["stopped", "stopped"]
    warned = world.cluster.sql("SELECT data FROM events WHERE type = 'lease.warning'")
    assert {row.data["reason"] for row in warned} == {"idle"}

    # Brought back once, to be used; again only if it was.
    world.use = {}
    world.extend(own, HOUR, member)
    world.extend(ruled, HOUR, member)
    world.agent.settle()
    assert [world.state(id) for id in (ruled, own)] == ["active", "active"]
    world.use = {ruled: QUIET}
    world.passes(1 * HOUR + 5 * MINUTE)
    assert world.state(ruled) == "stopped"
    with pytest.raises(Problem, match="nobody has used it since"):
        world.extend(ruled, HOUR, member)
    world.use = {}
    world.extend(ruled, HOUR)  # an admin may
    world.agent.settle()
    world.use = {ruled: BUSY}
    world.passes(5 * MINUTE)
    world.use = {ruled: QUIET}
    world.passes(1 * HOUR + 5 * MINUTE)
    assert world.state(ruled) == "stopped"
    world.extend(ruled, HOUR, member)


def test_an_admin_of_the_project_may_excuse_a_machine_from_the_rule(world: Leased) -> None:
    world.policy(idle_seconds=3600)
    id = world.launch()
    world.use[id] = QUIET
    world.passes(40 * MINUTE)
    world.extend(id, HOUR)
    world.passes(55 * MINUTE)
    assert world.state(id) == "active"
    world.passes(10 * MINUTE)
    assert world.state(id) == "stopped"


def test_an_idle_limit_of_ones_own_begins_anew_with_an_extension(world: Leased) -> None:
    id, member = world.launch(idle_seconds=3600), world.member()
    world.use[id] = QUIET
    world.passes(40 * MINUTE)
    world.extend(id, HOUR, member)
    world.passes(50 * MINUTE)
    assert world.state(id) == "active"


def test_what_has_no_lease_has_nothing_to_extend(world: Leased) -> None:
    id = world.launch()
    world.passes(1 * HOUR)
    with pytest.raises(Problem) as refused:
        world.extend(id, HOUR)
    assert refused.value.code == "no_lease"


def test_a_warning_goes_to_the_terminals(world: Leased, database_url: str) -> None:
    libpq = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(libpq, autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        id = world.launch(max_duration_seconds=2 * 3600)
        world.passes(1 * HOUR + 1 * MINUTE)
        heard = [notice.payload.partition(" ")[::2] for notice in listener.notifies(timeout=5, stop_after=100)]
    mail = [message for topic, message in heard if topic == dials(world.agent.node_id)]
    (message,) = mail
    notice = from_server(message)
    assert isinstance(notice, Notice)
    assert notice.id == id
    assert "gpuaas extend a" in notice.text
    assert "60 minutes" in notice.text


def test_a_lease_begins_when_the_machine_is_up_and_not_when_it_was_asked_for(world: Leased) -> None:
    id = world.cluster.launch("a", lease=LeaseRequest(3600))
    world.clock.advance(2 * HOUR)
    sweep.sweep(world.cluster.store)
    assert world.state(id) == "provisioning"
    world.cluster.store.transact(nodes.seen, world.agent.node_id)
    world.agent.settle()
    world.passes(50 * MINUTE)
    assert world.state(id) == "active"


def test_a_view_says_when(world: Leased) -> None:
    from gpuaas.control.http.allocations import shown_allocations

    id = world.launch(max_duration_seconds=7200)
    world.launch("b")

    def shown(tx: Tx) -> list[Any]:
        return [msgspec.to_builtins(view) for view in shown_allocations(tx, [verbs.show(tx, world.cluster.caller, id)])]

    (view,) = world.cluster.store.transact(shown)
    assert view["lease"]["ends_at"] == (NOON + timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    assert "extend" in view["allowed_actions"]
    world.passes(2 * HOUR + 5 * MINUTE)
    (view,) = world.cluster.store.transact(shown)
    assert view["lease"]["released_at"] == (NOON + timedelta(hours=2, minutes=30)).isoformat().replace("+00:00", "Z")


def test_a_heartbeat_is_all_that_a_kept_machine_needs(world: Leased) -> None:
    """A node that falls silent with a stopped machine comes back with a stopped machine."""
    id = world.launch(max_duration_seconds=3600)
    world.passes(62 * MINUTE)
    world.clock.advance(60)
    lost_nodes.sweep(world.cluster.store)
    assert world.state(id) == "unreachable"
    session = world.agent.session
    assert session is not None
    world.agent.send(Heartbeat(99, session.epoch, world.agent.store_id or "", world.agent.revision))
    lost_nodes.sweep(world.cluster.store)
    assert world.state(id) == "stopped"
