"""How long a machine may stay: until a time, or until it has done nothing for a while. Deciding, without any clock.

Told at T-1h and T-10m, stopped at T, released after a grace in which `extend` brings it back. A stage follows the one
before by its minimum time, so that a clock that was wrong, or servers that were away, never skip a warning.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuaas.model.allocation import Allocation

HOUR, MINUTES, STOPPED = "hour", "minutes", "stopped"
FIRST_WARNING, LAST_WARNING = timedelta(hours=1), timedelta(minutes=10)
GRACE = timedelta(minutes=30)
IDLE_GPU_PERCENT = 5  # where nobody has said when a GPU is idle
IDLE_CPUS = 0.1  # of one CPU: a machine without GPUs that uses less does nothing
SHORTEST_IDLE, LONGEST_IDLE = timedelta(minutes=10), timedelta(hours=23)  # what machines use is kept for a day

_RANK = {None: 0, HOUR: 1, MINUTES: 2, STOPPED: 3}


@dataclass(frozen=True)
class Lease:
    """Of one machine. `busy_at`: when it was last known to do something; `stage`: what its users were last told."""

    allocation_id: str
    max_seconds: int | None = None
    idle_seconds: int | None = None
    ends_at: datetime | None = None  # once it was extended
    extended_at: datetime | None = None
    busy_at: datetime | None = None
    looked_at: datetime | None = None
    stage: str | None = None
    stage_at: datetime | None = None
    excused_at: datetime | None = None  # a lead has extended it, or it was brought back: the project's rule begins anew


@dataclass(frozen=True)
class LeasePolicy:
    """What the leads of a project have decided. A user can ask for less, never for more."""

    project_id: str
    idle_seconds: int | None
    idle_gpu_percent: int  # busier than that is not idle
    max_seconds: int | None


@dataclass(frozen=True)
class Deadline:
    at: datetime
    reason: str  # duration or idle
    length: timedelta  # of the whole lease, or of doing nothing
    by_rule: bool = False  # of the project: no user's extension helps

    @property
    def notice(self) -> timedelta:
        """At least this long before the end it is told; in what is shorter than twenty minutes, half of it."""
        return min(LAST_WARNING, max(self.length, timedelta()) / 2)


def idle_limit(lease: Lease, policy: LeasePolicy | None) -> int | None:
    """The shorter one: what the project has decided cannot be undone by a user."""
    asked = [lease.idle_seconds, policy.idle_seconds if policy else None]
    return min((seconds for seconds in asked if seconds is not None), default=None)


def deadline(allocation: Allocation, lease: Lease, policy: LeasePolicy | None) -> Deadline | None:
    """None before it ran for the first time, and for a machine that may stay."""
    begin = allocation.active_at
    if begin is None:
        return None
    found = []
    if lease.ends_at is not None or lease.max_seconds is not None:
        seconds = timedelta(seconds=lease.max_seconds or 0)
        end = lease.ends_at or begin + seconds
        found.append(Deadline(end, "duration", end - (lease.extended_at or begin)))
    if lease.idle_seconds is not None:
        found.append(_idle(lease.idle_seconds, begin, lease.busy_at, lease.extended_at))
    if (ruled := rule_end(allocation, lease, policy)) is not None:
        found.append(ruled)
    return min(found, key=lambda item: item.at, default=None)


def rule_end(allocation: Allocation, lease: Lease, policy: LeasePolicy | None) -> Deadline | None:
    """When the idle rule of the project ends it. What a user asks for is no sign of life: only work and logins are."""
    if policy is None or policy.idle_seconds is None or allocation.active_at is None:
        return None
    return replace(_idle(policy.idle_seconds, allocation.active_at, lease.busy_at, lease.excused_at), by_rule=True)


def _idle(seconds: int, *signs_of_life: datetime | None) -> Deadline:
    since = max(moment for moment in signs_of_life if moment is not None)
    return Deadline(since + timedelta(seconds=seconds), "idle", timedelta(seconds=seconds))


def next_stage(lease: Lease, end: Deadline | None, now: datetime) -> str | None:
    """What the machine's users should have been told by now; STOPPED: it is time to stop it."""
    if end is None:
        return None
    left = end.at - now
    if left <= timedelta() and lease.stage == MINUTES and lease.stage_at and now - lease.stage_at >= end.notice:
        return STOPPED
    if left <= end.notice:
        return MINUTES
    return HOUR if left <= FIRST_WARNING < end.length else None


def is_later(stage: str | None, than: str | None) -> bool:
    return _RANK[stage] > _RANK[than]


def may_be_released(lease: Lease, now: datetime) -> bool:
    return lease.stage == STOPPED and lease.stage_at is not None and now - lease.stage_at >= GRACE
