"""Machines that do nothing: who works on them, what is measured of it, and that nobody is stopped who did something.

The leads of one tenant let nobody idle for longer than a minute; the others leave it to who launches.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpuaas.control.operations.lease import LOOK, RECENT
from gpuaas.wire.node import Sample

if TYPE_CHECKING:
    from .world import World

Row = dict[str, Any]
POLICY_SECONDS = 60
BUSY_PERCENT, IDLE_PERCENT = 90.0, 1.0
SAMPLES = (
    "SELECT allocation_id AS id, at, sessions > 0 OR (gpus->0->>'busy_percent')::float > 50 AS busy FROM samples"
    " ORDER BY allocation_id, at"
)
LIMITS = (
    "SELECT a.id, l.idle_seconds AS own, p.idle_seconds AS policy FROM allocations a LEFT JOIN leases l"
    " ON l.allocation_id = a.id LEFT JOIN lease_policies p ON p.project_id = a.project_id"
)
OPEN = "SELECT DISTINCT allocation_id AS id FROM sessions WHERE closed_at IS NULL"


def begin(world: "World") -> None:
    world.monitor.execute(
        "INSERT INTO lease_policies (project_id, idle_seconds, idle_gpu_percent)"
        " SELECT id, %s, 5 FROM projects WHERE slug = 'acme-lab'",
        [POLICY_SECONDS],
    )


def change(world: "World") -> None:
    running = sorted(id for agent in world.agents for id, box in agent.host.state.containers.items() if box.running)
    if running:
        id = world.rng.choice(running)
        world.working ^= {id}
        for agent in world.agents if id not in world.working else ():
            agent.host._end_sessions(id, "closed")


def pass_a_while(world: "World") -> None:
    """A few seconds at a time, in which everybody who can talks, and mostly also measures."""
    for _ in range(world.rng.choice((2, 4, 8))):
        for agent in world.agents:
            if agent.alive and not agent.partitioned:
                if agent.connection is None:
                    world.connect(agent)
                world._talk(agent)
                if world.rng.random() < 0.8:
                    world.measure(agent)
                    world._talk(agent)
        world.tick(7.0)


def used(world: "World", samples: list[Sample]) -> list[Sample]:
    """As much as somebody works there."""
    return [
        replace(sample, gpus=[replace(gpu, busy_percent=_percent(world, sample.id)) for gpu in sample.gpus])
        for sample in samples
    ]


def _percent(world: "World", id: str) -> float:
    return BUSY_PERCENT if id in world.working else IDLE_PERCENT


class Idling:
    """What servers could know of each machine, and since when."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.known: dict[tuple[str, datetime], datetime] = {}  # of each measurement: since when it is in the store
        self.busy: dict[str, list[datetime]] = {}
        self.newest: dict[str, list[datetime]] = {}
        self.limits: dict[str, int | None] = {}
        self.open: dict[str, datetime] = {}  # machines on which somebody is: since when that is known

    def look(self, cursor: Any) -> None:
        now = self.world.clock.now()
        for row in cursor.execute(SAMPLES).fetchall():
            key = row["id"], row["at"]
            if key not in self.known:
                self.known[key] = now
                self.newest.setdefault(row["id"], []).append(row["at"])
                if row["busy"]:
                    self.busy.setdefault(row["id"], []).append(row["at"])
        for row in cursor.execute(LIMITS).fetchall():
            self.limits[row["id"]] = min((s for s in (row["own"], row["policy"]) if s is not None), default=None)
        there = {row["id"] for row in cursor.execute(OPEN).fetchall()}
        self.open = {id: self.open.get(id, now) for id in there}

    def ended(self, id: str, row: Row, at: datetime, told: datetime | None) -> None:
        """Whatever was in the store before somebody decided counts; the rest may have come in that moment."""
        limit = self.limits.get(id)
        _expect(limit is not None, f"idle: {id} was stopped, and may idle for ever")
        assert limit is not None
        length = timedelta(seconds=limit)
        _expect(at - row["active_at"] >= length, f"idle: {id} was stopped at {at}, it was up since {row['active_at']}")
        did = [moment for moment in self.busy.get(id, []) if self.known[id, moment] < at and at - moment < length]
        _expect(not did, f"idle: {id} was stopped at {at}, it was at work at {did}")
        seen = [moment for moment in self.newest.get(id, []) if self.known[id, moment] < at]
        unseen = row["state"] != "failed" and (not seen or at - max(seen) > RECENT + LOOK)  # nobody measures it then
        _expect(not unseen, f"idle: {id} was stopped at {at}, it was last measured at {max(seen, default=None)}")
        people = self.open.get(id)
        _expect(people is None or people >= at - LOOK, f"idle: {id} was stopped at {at}, somebody was there: {people}")
        notice = min(timedelta(minutes=10), length / 2)
        _expect(told is not None and at - told >= notice, f"idle: {id} was stopped at {at}, told at {told}")


def _expect(holds: bool, message: str) -> None:
    from .world import expect

    expect(holds, message)
