"""Operators at tenants' objects."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import TEXT, In, Out, Ref


class OpenBreakGlass(In, frozen=True):
    """The tenant sees the reason. Eight hours at most."""

    org: Ref
    reason: Annotated[str, Meta(min_length=10, max_length=500, pattern=TEXT)]
    duration_seconds: Annotated[int, Meta(ge=60, le=8 * 3600)] = 3600


class BreakGlassView(Out, frozen=True):
    id: str
    org_id: str
    org: str
    user_id: str
    user: str
    reason: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    open: bool


class BreakGlassPage(Out, frozen=True):
    items: list[BreakGlassView]
    next_cursor: str | None
