"""The line of launches that wait."""

from datetime import datetime

from gpuaas.wire.api.allocations import ReasonView
from gpuaas.wire.api.base import Out


class WaitingView(Out, frozen=True):
    """One launch. `kept`: machines are kept free for it, because it is first in line."""

    position: int
    project_id: str
    allocation_ids: list[str]
    names: list[str]
    offer: str
    priority: int
    kept: bool
    reasons: list[ReasonView]
    since: datetime
    expires_at: datetime | None
    preemptible: bool = False


class QueuePage(Out, frozen=True):
    items: list[WaitingView]
    next_cursor: str | None
