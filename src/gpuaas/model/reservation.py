"""Capacity that is booked ahead, and when those who are there now will be gone. Deciding, without any clock."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuaas.model.lease import GRACE, STOPPED

UNUSED = timedelta(minutes=15)  # who has not come by then has lost it
CLEAN = timedelta(minutes=5)  # from the end of a machine until its GPUs are scrubbed
PROVISIONING = timedelta(minutes=10)  # a launch takes less
TAIL = GRACE + CLEAN  # how long a machine that ends with its lease has its GPUs after that
SHORTEST, LONGEST = timedelta(minutes=10), timedelta(days=30)
HORIZON = timedelta(days=90)


@dataclass(frozen=True)
class Reservation:
    """A window for `count` machines of one offer. `launch_name`: they are launched when it begins."""

    id: str
    org_id: str
    project_id: str
    name: str
    offer_id: str
    count: int
    owner_id: str
    state: str
    starts_at: datetime
    ends_at: datetime
    launch_name: str | None
    key_ids: tuple[str, ...]
    trouble: str | None  # why its place would not be there, if that is so
    ready_at: datetime | None  # since when its place is there and waits for it
    group_id: str | None  # what it became
    created_at: datetime
    ended_at: datetime | None

    @property
    def free_at(self) -> datetime:
        """When its GPUs are free again, if it is used to its end."""
        return self.ends_at + TAIL


@dataclass(frozen=True)
class Booking:
    """A slot that is kept for one machine (`seat`) of a reservation."""

    reservation_id: str
    slot_id: str
    node_id: str
    seat: int
    realisation: str
    starts_at: datetime
    free_at: datetime


@dataclass(frozen=True)
class Stay:
    """What is known of how long somebody has a slot."""

    slot_id: str
    node_id: str
    allocation_id: str
    gpus: int
    state: str
    claim: str
    preemptible: bool
    active_at: datetime | None
    wanted_by: str | None  # it was told to give way to them
    due_at: datetime | None
    max_seconds: int | None
    ends_at: datetime | None
    stage: str | None
    stage_at: datetime | None


def gone_by(stay: Stay, now: datetime, grace: timedelta | None) -> datetime | None:
    """When the slot is free at the latest; None: nobody knows. `grace`: of preemptible machines, where they count."""
    if stay.claim == "scrubbing":
        return now + CLEAN
    known = []
    if stay.stage == STOPPED and stay.stage_at is not None:
        known.append(max(stay.stage_at + GRACE, now) + CLEAN)
    elif stay.ends_at is not None or stay.max_seconds is not None:
        end = stay.ends_at or (stay.active_at or now + PROVISIONING) + timedelta(seconds=stay.max_seconds or 0)
        known.append(max(end, now) + TAIL)
    if stay.due_at is not None:
        known.append(max(stay.due_at, now) + CLEAN)
    elif stay.preemptible and grace is not None:
        known.append(now + grace + CLEAN)
    return min(known, default=None)


def stays_until(now: datetime, max_seconds: int | None, preemptible: bool, grace: timedelta) -> datetime | None:
    """The same for a machine that is not there yet."""
    if preemptible:
        return now + grace + CLEAN
    return None if max_seconds is None else now + PROVISIONING + timedelta(seconds=max_seconds) + TAIL
