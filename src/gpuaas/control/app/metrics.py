"""What machines use, how they are, and what an operator's monitoring sees of the fleet."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuaas.control.app import access, allocations
from gpuaas.control.store import deliveries, fleet, nodes, samples, slots, webhooks
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import invalid
from gpuaas.model import health as judging
from gpuaas.model.allocation import Allocation
from gpuaas.model.health import RECENT, Health, Seen
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import ALLOCATION, NODE, SLOT
from gpuaas.model.metrics import Point, newest, points

MAX_POINTS = 1000
USUAL_RANGE = timedelta(hours=1)
USUAL_POINTS = 360
FINEST_SECONDS = 10  # how often nodes look


@dataclass(frozen=True)
class Metrics:
    allocation_id: str
    since: datetime
    step_seconds: int
    points: list[Point]


@dataclass(frozen=True)
class Fleet:
    nodes: dict[str, int]  # by state
    agents_linked: int
    slots: dict[str, int]  # by state
    allocations: dict[str, int]  # by state
    measured: list[fleet.Measured]
    queued: int = 0
    queued_seconds: float = 0.0  # how long the oldest of them waits
    silence_seconds: float = 0.0  # of the ready node that was quiet the longest
    webhooks_pending: int = 0
    webhooks_lag: int = 0
    slots_in_use: dict[tuple[str, str], int] = field(default_factory=dict)  # approved ones, by GPU model and use


def metrics(tx: Tx, caller: Caller, name: str, since: datetime | None, step_seconds: int | None) -> Metrics:
    """At most MAX_POINTS of them, and nothing older than what is kept."""
    allocation = allocations.show(tx, caller, name)
    if since is not None and since > tx.now:
        raise invalid("`since` lies in the future.", "Ask for a time that has been; only a day is kept.")
    begin = max(since or tx.now - USUAL_RANGE, tx.now - samples.KEPT)
    seconds = (tx.now - begin).total_seconds()
    step = step_seconds or _rounded_up(seconds / USUAL_POINTS)
    if seconds / step > MAX_POINTS - 1:  # one less: the first and the last step may be cut
        raise invalid(
            f"That would be more than {MAX_POINTS} points.",
            f"Ask for a step of at least {_rounded_up(seconds / (MAX_POINTS - 1))} seconds, or a later `since`.",
            code="too_many_points",
        )
    return Metrics(allocation.id, begin, step, points(samples.since(tx, allocation.id, begin), begin, step))


def health(tx: Tx, caller: Caller, name: str) -> tuple[Allocation, Health, Point | None]:
    return _judged(tx, [allocations.show(tx, caller, name)])[0]


def list_health(
    tx: Tx, caller: Caller, project: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[tuple[Allocation, Health, Point | None]]:
    """Of every live machine that the caller sees: all that a live display needs, in a few queries."""
    return _judged(tx, allocations.list_allocations(tx, caller, project, True, after, limit))


def watched(tx: Tx, caller: Caller) -> Fleet:
    access.on_platform(tx, caller, "platform.metrics")
    return whole_fleet(tx)


def scraped(tx: Tx) -> Fleet:
    """For the scrape token of the server's own configuration, which was checked before."""
    tx.authorized.add("platform.metrics")
    return whole_fleet(tx)


def whole_fleet(tx: Tx) -> Fleet:
    queued, oldest = fleet.queue(tx)
    return Fleet(
        nodes=fleet.by_state(tx, NODE),
        agents_linked=fleet.nodes_heard(tx, tx.now - judging.NODE_SILENCE),
        slots=fleet.by_state(tx, SLOT),
        allocations=fleet.by_state(tx, ALLOCATION),
        measured=fleet.measured(tx, tx.now - RECENT),
        queued=queued,
        queued_seconds=(tx.now - oldest).total_seconds() if oldest else 0.0,
        silence_seconds=fleet.longest_silence(tx),
        webhooks_pending=deliveries.pending(tx),
        webhooks_lag=webhooks.lag(tx),
        slots_in_use=fleet.slots_in_use(tx),
    )


def _judged(tx: Tx, items: list[Allocation]) -> list[tuple[Allocation, Health, Point | None]]:
    ids = [item.id for item in items]
    found = samples.newest(tx, ids, tx.now - samples.KEPT)
    heard = nodes.last_seen(tx, {item.node_id for item in items if item.node_id})
    troubles = slots.set_aside(tx, ids)
    judged = []
    for item in items:
        mine = found.get(item.id, [])
        last_heard = heard.get(item.node_id) if item.node_id else None
        seen = Seen(tx.now, item, last_heard, mine[-1] if mine else None, troubles.get(item.id, ()))
        judged.append((item, judging.judge(seen), newest(mine) if seen.recent else None))
    return judged


def _rounded_up(seconds: float) -> int:
    return max(1, -int(-seconds // FINEST_SECONDS)) * FINEST_SECONDS
