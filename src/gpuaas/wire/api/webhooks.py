"""Events out: webhooks, what was sent to them, and the body that they get."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from gpuaas.wire.api.base import END, In, Out, Ref, Slug
from gpuaas.wire.api.history import EventView

Url = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=2048,
        pattern=r"^https?://[!-~]+" + END,
        examples=["https://hooks.example.org/gpuaas"],
    ),
]
TypeFilter = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern=r"^([*]|[a-z_]+([.][a-z_]+)*([.][*])?)" + END,
        examples=["*", "allocation.*", "operation.failed"],
    ),
]
TypeFilters = Annotated[list[TypeFilter], Meta(min_length=1, max_length=32)]
Number = Annotated[int, Meta(ge=1, le=2**53)]


class NewWebhook(In, frozen=True):
    name: Slug
    url: Url
    types: TypeFilters = field(default_factory=lambda: ["*"])


class WebhookChange(In, frozen=True):
    """What is left out stays as it is."""

    url: Url | None = None
    types: TypeFilters | None = None
    enabled: bool | None = None


class Rotation(In, frozen=True):
    """How long what is sent carries a signature with the old secret too."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=30 * 24 * 3600)] = 24 * 3600


class Replay(In, frozen=True):
    """One delivery, or the events with these numbers. `feed`: the project whose they are, for an org's webhook."""

    delivery: Ref | None = None
    feed: Ref | None = None
    first: Number | None = None
    last: Number | None = None


class WebhookView(Out, frozen=True):
    id: str
    name: str
    org_id: str
    project_id: str | None
    url: str
    types: list[str]
    enabled: bool
    created_at: datetime
    previous_secret_until: datetime | None


class IssuedWebhook(Out, frozen=True):
    """The secret is shown once."""

    webhook: WebhookView
    secret: str


class DeliveryView(Out, frozen=True):
    id: str
    webhook_id: str
    project_id: str
    seq: int
    type: str
    state: str
    attempts: int
    replay: bool
    created_at: datetime
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    finished_at: datetime | None
    status: int | None
    error: str
    duration_ms: int | None


class Replayed(Out, frozen=True):
    deliveries: int


class WebhookPage(Out, frozen=True):
    items: list[WebhookView]
    next_cursor: str | None


class DeliveryPage(Out, frozen=True):
    items: list[DeliveryView]
    next_cursor: str | None


class WebhookEvent(EventView, frozen=True, kw_only=True):
    """What a webhook gets: the event as the API shows it, and an id that is the same in every attempt and replay."""

    id: str
