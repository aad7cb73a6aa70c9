"""The HTTP API: what comes in and what goes out. Unknown fields are refused, every number and text is bounded."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field

# `$` alone would let a trailing newline pass.
END = r"$(?!\n)"
# Lone surrogates need no mention: the JSON decoder refuses them.
TEXT = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+" + END
MAX_BODY_BYTES = 256 * 1024

Slug = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        # Not shaped like an id: a name must never be mistaken for somebody else's object.
        pattern=r"^(?![a-z]{2}-[a-z2-7]{16}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?" + END,
        description="Lower-case letters, digits and dashes.",
        examples=["train-1"],
    ),
]
Ref = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=254,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9@._+-]*" + END,
        description="An id, or a name that is unique where you look.",
        examples=["h100-1"],
    ),
]
Title = Annotated[str, Meta(min_length=1, max_length=120, pattern=TEXT, examples=["Research"])]
Email = Annotated[
    str,
    Meta(max_length=254, pattern=r"^[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+" + END, examples=["ada@example.org"]),
]
Password = Annotated[str, Meta(min_length=12, max_length=200, pattern=TEXT, examples=["correct horse battery"])]
KeyLine = Annotated[str, Meta(min_length=16, max_length=16384, pattern=TEXT, examples=["ssh-ed25519 AAAAC3... me"])]
Seconds = Annotated[int, Meta(ge=1, le=366 * 24 * 3600)]
Scope = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[a-z._*]+" + END, examples=["*", "read", "allocation.*"])
]
ProjectRole = Annotated[str, Meta(pattern=r"^(viewer|editor|admin)" + END, examples=["editor"])]


class In(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything that comes in."""


class Out(Struct, frozen=True):
    """Base of everything that goes out."""


class Problem(Out, frozen=True):
    """RFC 9457 problem details. `code` is stable; `detail` and `hint` are for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str
    correlation_id: str
    errors: list[dict[str, Any]] = []


# --- identity ---------------------------------------------------------------------------------------------------


class Login(In, frozen=True):
    email: Email
    password: Annotated[str, Meta(min_length=1, max_length=200, pattern=TEXT)]


class NewToken(In, frozen=True):
    name: Title
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=32)] = field(default_factory=lambda: ["*"])
    lifetime_seconds: Seconds = 90 * 24 * 3600


class TokenView(Out, frozen=True):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None


class IssuedToken(Out, frozen=True):
    """The secret is shown once and kept nowhere."""

    token: TokenView
    secret: str


class NewUser(In, frozen=True):
    email: Email
    name: Title
    password: Password | None = None
    platform_role: Annotated[str, Meta(pattern=r"^(platform_admin|platform_ops)" + END)] | None = None


class UserView(Out, frozen=True):
    id: str
    email: str
    name: str
    platform_role: str | None
    created_at: datetime
    disabled_at: datetime | None


class NewOrg(In, frozen=True):
    slug: Slug
    name: Title
    admin: Ref  # becomes tenant_admin: a user's id or address


class OrgView(Out, frozen=True):
    id: str
    slug: str
    name: str
    role: str | None
    created_at: datetime


class NewProject(In, frozen=True):
    slug: Slug
    name: Title
    org: Ref | None = None  # may be left out by a member of one org


class ProjectView(Out, frozen=True):
    id: str
    org_id: str
    slug: str
    name: str
    role: str | None
    created_at: datetime
    open_network: bool


class ProjectNetwork(In, frozen=True):
    """Open: machines of this project that are on the same node may talk to each other."""

    open: bool


class MemberRole(In, frozen=True):
    role: ProjectRole


class MemberView(Out, frozen=True):
    user_id: str
    email: str
    name: str
    role: str


class NewKey(In, frozen=True):
    name: Slug
    public_key: KeyLine


class KeyView(Out, frozen=True):
    id: str
    name: str
    type: str
    public_key: str
    fingerprint: str
    created_at: datetime


class Whoami(Out, frozen=True):
    user: UserView
    token_id: str
    scopes: list[str]
    orgs: list[OrgView]
    projects: list[ProjectView]


# --- the fleet --------------------------------------------------------------------------------------------------


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


class ApproveSlots(In, frozen=True):
    """No names: every proposed slot of the node."""

    slots: Annotated[list[Ref], Meta(max_length=1024)] = []


class NewOffer(In, frozen=True):
    slug: Slug
    name: Title
    gpu_model: Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9 ._-]*" + END, examples=["H100"])]
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


# --- allocations ------------------------------------------------------------------------------------------------


class GrantRequest(In, frozen=True):
    user: Ref
    expires_in_seconds: Seconds | None = None
    reason: Title | None = None


class Access(In, frozen=True):
    """Who gets in from the start. No `keys`: all of the submitter's registered keys."""

    keys: Annotated[list[Ref], Meta(min_length=1, max_length=64)] | None = None
    grants: Annotated[list[GrantRequest], Meta(max_length=64)] = []


class StorageRequest(In, frozen=True):
    volume: Ref
    path: Annotated[str, Meta(min_length=2, max_length=255, pattern=r"^/[A-Za-z0-9._/-]+" + END)]
    mode: Annotated[str, Meta(pattern=r"^(rw|ro)" + END)] = "rw"


class LeaseRequest(In, frozen=True):
    max_duration_seconds: Seconds | None = None
    idle_seconds: Seconds | None = None


class Launch(In, frozen=True):
    """The one submit: compute, access, storage, runtime, lease."""

    name: Slug
    offer: Ref
    project: Ref | None = None  # may be left out by a member of one project
    count: Annotated[int, Meta(ge=1, le=64)] = 1  # all or none
    wait: bool = False  # queue when nothing fits
    access: Access = field(default_factory=Access)
    storage: Annotated[list[StorageRequest], Meta(max_length=16)] = []
    runtime_bundle_id: Ref | None = None
    runtime_bundle_slug: Ref | None = None
    lease: LeaseRequest | None = None


class PlanRequest(In, frozen=True):
    offer: Ref
    project: Ref | None = None
    count: Annotated[int, Meta(ge=1, le=64)] = 1


class ReasonView(Out, frozen=True):
    code: str
    message: str
    count: int
    nodes: list[str]  # named for operators only


class PlanView(Out, frozen=True):
    fits: bool
    realisations: list[str]
    reasons: list[ReasonView]


class Confirm(In, frozen=True):
    """Repeats the object's name: the call destroys or interrupts something."""

    # Longer than a Slug: the machines of a group have a number after the name that was asked for.
    confirm: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+" + END, examples=["train-1"])]


class Endpoint(Out, frozen=True):
    host: str
    port: int
    user: str


class FailureView(Out, frozen=True):
    code: str
    message: str


class AllocationView(Out, frozen=True):
    id: str
    org_id: str
    project_id: str
    name: str
    state: str
    offer: str
    owner_id: str
    realisation: str | None
    endpoint: Endpoint | None
    host_key: str
    failure: FailureView | None
    allowed_actions: list[str]
    created_at: datetime
    active_at: datetime | None
    released_at: datetime | None


class PhaseView(Out, frozen=True):
    name: str
    state: str
    started_at: datetime | None
    finished_at: datetime | None
    progress_at: datetime | None
    message: str
    percent: int | None
    log: str


class OperationView(Out, frozen=True):
    id: str
    kind: str
    state: str
    org_id: str
    project_id: str
    allocation_id: str
    phases: list[PhaseView]
    failure: FailureView | None
    created_by: str
    created_at: datetime
    finished_at: datetime | None
    correlation_id: str | None


class Launched(Out, frozen=True):
    allocations: list[AllocationView]
    operations: list[OperationView]
    queued: bool
    reasons: list[ReasonView]


class Changed(Out, frozen=True):
    allocation: AllocationView
    operation: OperationView


class MachineKeys(In, frozen=True):
    """Exactly these of the owner's registered keys get in. None at all is allowed."""

    keys: Annotated[list[Ref], Meta(max_length=64)]


class MachineKeyView(Out, frozen=True):
    id: str
    name: str
    type: str
    fingerprint: str
    user_id: str
    user: str  # the address of whoever gets in with it


class SessionView(Out, frozen=True):
    """Somebody who logged in. `user` is the address; both are None where the node named nobody that is known here."""

    session: str
    user_id: str | None
    user: str | None
    fingerprint: str
    source: str
    opened_at: datetime | None  # None: the node has told only of the end, so far
    closed_at: datetime | None
    close_reason: str | None


class EventView(Out, frozen=True):
    seq: int
    type: str
    at: datetime
    org_id: str
    project_id: str
    object_kind: str
    object_id: str
    actor: str
    data: dict[str, Any]
    correlation_id: str | None
    app_instance_id: str | None
    operating_mode: str | None
    control_plane_scope: str | None
    runtime_backend: str | None
    tenant_boundary_mode: str | None


class AuditView(Out, frozen=True):
    seq: int
    at: datetime
    org_id: str
    project_id: str | None
    actor: str
    action: str
    object_kind: str
    object_id: str
    data: dict[str, Any]
    correlation_id: str | None
    hash: str


class AuditVerdict(Out, frozen=True):
    org_id: str
    entries: int
    intact: bool
    problem: str | None


class Health(Out, frozen=True):
    status: str
    version: str


# --- pages: cursor pagination, one type each so that the document names them -----------------------------------------


class AllocationPage(Out, frozen=True):
    items: list[AllocationView]
    next_cursor: str | None


class OperationPage(Out, frozen=True):
    items: list[OperationView]
    next_cursor: str | None


class EventPage(Out, frozen=True):
    items: list[EventView]
    next_cursor: str | None


class AuditPage(Out, frozen=True):
    items: list[AuditView]
    next_cursor: str | None


class OfferPage(Out, frozen=True):
    items: list[OfferView]
    next_cursor: str | None


class NodePage(Out, frozen=True):
    items: list[NodeView]
    next_cursor: str | None


class ProjectPage(Out, frozen=True):
    items: list[ProjectView]
    next_cursor: str | None


class MemberPage(Out, frozen=True):
    items: list[MemberView]
    next_cursor: str | None


class TokenPage(Out, frozen=True):
    items: list[TokenView]
    next_cursor: str | None


class KeyPage(Out, frozen=True):
    items: list[KeyView]
    next_cursor: str | None


class MachineKeyPage(Out, frozen=True):
    items: list[MachineKeyView]
    next_cursor: str | None


class SessionPage(Out, frozen=True):
    items: list[SessionView]
    next_cursor: str | None


class UserPage(Out, frozen=True):
    items: list[UserView]
    next_cursor: str | None
