"""The machine: launch, plan, operations, keys and sessions."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, field

from gpuaas.wire.api.base import END, IdleSeconds, In, Out, Ref, RuntimeName, Seconds, Slug, Title


class GrantRequest(In, frozen=True):
    user: Ref
    expires_in_seconds: Seconds | None = None
    reason: Title | None = None


class Access(In, frozen=True):
    """Who gets in from the start. No `keys`: all of the submitter's registered keys."""

    keys: Annotated[list[Ref], Meta(min_length=1, max_length=64)] | None = None
    grants: Annotated[list[GrantRequest], Meta(max_length=64)] = field(default_factory=list)


class StorageRequest(In, frozen=True):
    volume: Ref
    path: Annotated[str, Meta(min_length=2, max_length=255, pattern=r"^/[A-Za-z0-9._/-]+" + END)]
    mode: Annotated[str, Meta(pattern=r"^(rw|ro)" + END)] = "rw"


class LeaseRequest(In, frozen=True):
    """How long it may stay: from its first minute on, and without doing anything."""

    max_duration_seconds: Seconds | None = None
    idle_seconds: IdleSeconds | None = None


class Launch(In, frozen=True):
    """The one submit: compute, access, storage, runtime, lease."""

    name: Slug
    offer: Ref
    project: Ref | None = None  # may be left out by a member of one project
    count: Annotated[int, Meta(ge=1, le=64)] = 1  # all or none
    wait: bool = False  # queue when nothing fits
    wait_seconds: Seconds | None = None  # and give up after that
    priority: Annotated[int, Meta(ge=0, le=9)] = 5  # among what waits in the same project; 9 goes first
    access: Access = field(default_factory=Access)
    storage: Annotated[list[StorageRequest], Meta(max_length=16)] = field(default_factory=list)
    runtime_bundle_id: Ref | None = None
    runtime_bundle_slug: RuntimeName | None = None  # applied beside the launch, which does not wait for it
    lease: LeaseRequest | None = None
    preemptible: bool = False  # gives way to others when they do not fit, after a warning
    reservation: Ref | None = None  # uses it; offer and count are what was booked


class PlanRequest(In, frozen=True):
    offer: Ref
    project: Ref | None = None
    count: Annotated[int, Meta(ge=1, le=64)] = 1
    runtime_bundle_id: Ref | None = None
    runtime_bundle_slug: RuntimeName | None = None  # whether a machine could use it
    lease: LeaseRequest | None = None  # how long it would stay: a short one may use what is reserved for later
    preemptible: bool = False


class ReasonView(Out, frozen=True):
    code: str
    message: str
    count: int
    nodes: list[str]  # named for operators only


class SeatView(Out, frozen=True):
    """Where one machine would go. `link_groups`: of so many groups of directly linked GPUs it would have a part."""

    node: str
    realisation: str
    gpus: int
    link_groups: int
    numa_domains: int


class PlanView(Out, frozen=True):
    fits: bool
    realisations: list[str]
    reasons: list[ReasonView]
    earliest: datetime | None = None  # when it would fit, from who has to be gone by when; None: nobody knows
    seats: list[SeatView] = field(default_factory=list)  # for operators only
    runtime: str | None = None  # which version was meant


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


class LeaseView(Out, frozen=True):
    """`ends_at`: when it is stopped, `reason`: why (duration or idle); `released_at`: when it goes after that."""

    max_duration_seconds: int | None
    idle_seconds: int | None
    ends_at: datetime | None
    reason: str | None
    released_at: datetime | None


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
    lease: LeaseView | None = None
    preemptible: bool = False
    preempted_at: datetime | None = None  # it was told to give way, and is released then
    drained_at: datetime | None = None  # its place is taken out of service, and it is released then


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
    runtime_operations: list[OperationView] = field(default_factory=list)  # of the runtime that was chosen


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


class AllocationPage(Out, frozen=True):
    items: list[AllocationView]
    next_cursor: str | None


class OperationPage(Out, frozen=True):
    items: list[OperationView]
    next_cursor: str | None


class MachineKeyPage(Out, frozen=True):
    items: list[MachineKeyView]
    next_cursor: str | None


class SessionPage(Out, frozen=True):
    items: list[SessionView]
    next_cursor: str | None
