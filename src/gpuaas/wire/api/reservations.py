"""Capacity that is booked ahead."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from gpuaas.wire.api.base import In, Out, Ref, Slug
from gpuaas.wire.api.usage import Moment


class ReservedLaunch(In, frozen=True):
    """What is launched when the window begins. No `keys`: all that you have registered now."""

    name: Slug
    keys: Annotated[list[Ref], Meta(min_length=1, max_length=64)] | None = None


class NewReservation(In, frozen=True):
    """`count` machines of an offer, all or none, from `starts_at` to `ends_at`."""

    name: Slug
    offer: Ref
    starts_at: Moment
    ends_at: Moment
    project: Ref | None = None  # may be left out by a member of one project
    count: Annotated[int, Meta(ge=1, le=64)] = 1
    launch: ReservedLaunch | None = None  # None: launch with `reservation` when it has begun


class ReservationView(Out, frozen=True):
    """`trouble`: why its place would not be there; `ready_at`: since when it is, in its window."""

    id: str
    org_id: str
    project_id: str
    name: str
    state: str
    offer: str
    count: int
    owner_id: str
    starts_at: datetime
    ends_at: datetime
    launch: str | None
    trouble: str | None
    ready_at: datetime | None
    allocation_ids: list[str]
    allowed_actions: list[str]
    created_at: datetime
    ended_at: datetime | None


class ReservationPage(Out, frozen=True):
    items: list[ReservationView]
    next_cursor: str | None
