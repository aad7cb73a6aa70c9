"""A webhook: where events are sent, which of them, and when a delivery that failed is tried again."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuaas.model.event import EVENTS

EVERYTHING = "*"
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(hours=1)
MOST_ATTEMPTS = 16  # with the pauses between them: seven hours
JITTER = 0.2  # of a pause, so that what failed together is not tried again together


@dataclass(frozen=True)
class Webhook:
    id: str
    org_id: str
    project_id: str | None  # None: of every project of the org
    name: str
    url: str
    types: tuple[str, ...]
    created_by: str
    created_at: datetime
    disabled_at: datetime | None
    previous_until: datetime | None  # until then, what is sent is signed with the secret before this one too


@dataclass(frozen=True)
class Delivery:
    """One event on its way to one webhook."""

    id: str
    number: int
    webhook_id: str
    project_id: str
    seq: int
    type: str
    state: str
    attempts: int
    replay: bool
    next_at: datetime | None  # None while pending: as soon as it is its turn
    created_at: datetime
    attempted_at: datetime | None
    finished_at: datetime | None
    status: int | None
    error: str
    duration_ms: int | None


@dataclass(frozen=True)
class Outcome:
    """What became of one attempt. `status`: of the HTTP answer, where there was one."""

    status: int | None
    error: str
    duration_ms: int

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300 and not self.error


def is_filter(text: str) -> bool:
    """`*`, `noun.*` or the name of one type."""
    if text == EVERYTHING or text in EVENTS:
        return True
    return text.endswith(".*") and any(type.startswith(text[:-1]) for type in EVENTS)


def wants(types: tuple[str, ...], type: str) -> bool:
    return any(
        wanted in (EVERYTHING, type) or (wanted.endswith(".*") and type.startswith(wanted[:-1])) for wanted in types
    )


def pause(attempts: int, chance: float) -> timedelta | None:
    """How long to wait after this many attempts, `chance` in 0..1; None: that was the last one."""
    if attempts >= MOST_ATTEMPTS:
        return None
    doubled: int = 2 ** min(attempts - 1, 20)
    return min(FIRST_PAUSE * doubled, LONGEST_PAUSE) * (1 - JITTER + 2 * JITTER * chance)
