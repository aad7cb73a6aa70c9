"""What machines are made of: nodes, slots, offers."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from gpuaas.wire.api.base import END, In, Out, Ref, Slug, Title


class NewJoinToken(In, frozen=True):
    org: Ref | None = None  # a tenant's own pool
    approve_slots: bool = False  # the slots that the node proposes are approved without another look
    lifetime_seconds: Annotated[int, Meta(ge=1, le=30 * 24 * 3600)] = 3600


class JoinToken(Out, frozen=True):
    id: str
    secret: str
    expires_at: datetime


class Join(In, frozen=True):
    token: Annotated[str, Meta(min_length=16, max_length=128, pattern=r"^[A-Za-z0-9_-]+" + END)]
    name: Slug
    public_key: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}" + END)]
    signature: Annotated[str, Meta(pattern=r"^[0-9a-f]{128}" + END)]


class Joined(Out, frozen=True):
    node_id: str
    name: str


class DrainRequest(In, frozen=True):
    """Nothing new is placed. Who is there is told, and released at the deadline; without one they may stay."""

    reason: Title
    deadline_seconds: Annotated[int, Meta(ge=60, le=366 * 24 * 3600)] | None = None


class DrainView(Out, frozen=True):
    reason: str
    since: datetime
    deadline: datetime | None


class Quarantine(In, frozen=True):
    reason: Title


class Pool(In, frozen=True):
    """No `tenant`: everybody's."""

    tenant: Ref | None = None


class GpuScrubView(Out, frozen=True):
    gpu: str
    clean: bool
    evidence: str  # in the node's words: how it was cleared, and by what it knows


class ScrubView(Out, frozen=True):
    """`clean`: every GPU of the slot was. `allocation_id`: whose it had been; none where the slot was returned."""

    at: datetime
    clean: bool
    allocation_id: str | None
    gpus: list[GpuScrubView]


class SlotView(Out, frozen=True):
    id: str
    name: str
    gpu_model: str
    gpus: list[str]
    cpus: int
    memory_mib: int
    state: str
    reason: str
    allocation_id: str | None
    allowed_actions: list[str]
    numa: int = 0
    drain: "DrainView | None" = None
    link_group: int | None = None  # slots of a node with the same number: their GPUs are linked directly
    card: str | None = None  # the GPU that its MIG instances are parts of
    scrubbing: bool = False  # nobody gets it before its node has proved that nothing is left on it
    last_scrub: "ScrubView | None" = None


class NodeView(Out, frozen=True):
    id: str
    name: str
    state: str
    org_id: str | None
    ready: bool
    reason: str
    address: str
    agent_version: str
    gpus: int
    last_seen_at: datetime | None
    created_at: datetime
    slots: list[SlotView]
    drain: "DrainView | None" = None


class StrayView(Out, frozen=True):
    """`slots`: the names of those that nobody else gets. `removed_at`: somebody has asked the node to delete it."""

    id: str
    slots: list[str]
    seen_at: datetime
    removed_at: datetime | None


class StrayPage(Out, frozen=True):
    items: list[StrayView]
    next_cursor: str | None


class ApproveSlots(In, frozen=True):
    """No names: every proposed slot of the node."""

    slots: Annotated[list[Ref], Meta(max_length=1024)] = field(default_factory=list)


class NewOffer(In, frozen=True):
    slug: Slug
    name: Title
    gpu_model: Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9 ._+-]*" + END, examples=["H100"])]
    gpu_count: Annotated[int, Meta(ge=0, le=64)]
    cpus: Annotated[int, Meta(ge=1, le=4096)]
    memory_mib: Annotated[int, Meta(ge=16, le=2**40)]
    isolation: Annotated[str, Meta(pattern=r"^(any|dedicated_node)" + END)] = "any"
    realisations: Annotated[
        list[Annotated[str, Meta(pattern=r"^(gpu_slice|baremetal)" + END)]], Meta(min_length=1, max_length=2)
    ] = field(default_factory=lambda: ["gpu_slice"])
    price_micros_per_hour: Annotated[int, Meta(ge=0, le=10**15)] = 0


class OfferView(Out, frozen=True):
    id: str
    slug: str
    name: str
    gpu_model: str
    gpu_count: int
    cpus: int
    memory_mib: int
    isolation: str
    realisations: list[str]
    price_micros_per_hour: int


class OfferPage(Out, frozen=True):
    items: list[OfferView]
    next_cursor: str | None


class NodePage(Out, frozen=True):
    items: list[NodeView]
    next_cursor: str | None
