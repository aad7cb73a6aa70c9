"""The catalog of runtimes, and what a machine has of it."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from gpuaas.wire.api.base import In, Out, Ref, RuntimeName, RuntimeVersion

OlderThan = Annotated[int, Meta(ge=3600, le=10 * 366 * 86_400)]  # never what is on its way


class NewRuntimeBundle(In, frozen=True):
    """A version, by the manifest that its build wrote."""

    manifest: Annotated[
        dict[str, Any], Meta(max_length=64, description="manifest.json, as `gpuaas runtime build` wrote it.")
    ]


class RuntimeRequirements(Out, frozen=True):
    """What a machine must have; 0, "any" or nothing: it does not matter."""

    architectures: list[str]
    gpu_family: str
    min_driver: str
    cuda: str
    rocm: str
    min_memory_bytes: int
    recommended_memory_bytes: int


class RuntimeBundleView(Out, frozen=True):
    """One version of a bundle, for one architecture. `received_bytes`: of its image, so far."""

    id: str
    slug: str
    version: str
    name: str
    product: str
    description: str
    family: str
    support: str
    default: bool
    scope: str
    project_id: str | None
    architecture: str
    digest: str
    size_bytes: int
    received_bytes: int
    requirements: RuntimeRequirements
    root: str
    state: str
    allowed_actions: list[str]
    created_at: datetime
    published_at: datetime | None
    deprecated_at: datetime | None
    manifest: dict[str, Any] | None = None  # where one is looked at


class RuntimeBundlePage(Out, frozen=True):
    items: list[RuntimeBundleView]
    next_cursor: str | None


class ApplyRuntime(In, frozen=True):
    """By id, by name, or by both if they mean the same. `replace`: a bundle that goes when this one is there."""

    runtime_bundle_id: Ref | None = None
    runtime_bundle_slug: RuntimeName | None = None
    version: RuntimeVersion | None = None
    replace: RuntimeName | None = None


class RollbackRuntime(In, frozen=True):
    """Without `version`: to the one before."""

    version: RuntimeVersion | None = None


class RuntimeVersionView(Out, frozen=True):
    """A version that the machine should see. `observed`: what its node said last (fetching, ready, failed)."""

    bundle_id: str
    version: str
    digest: str
    root: str
    state: str
    current: bool
    observed: str
    percent: int | None
    message: str
    applied_at: datetime | None
    applied_by: str
    operation_id: str
    applied_by_email: str = ""


class AllocationRuntimeView(Out, frozen=True):
    """A bundle on a machine. Where `desired_version` is not `current_version`, an operation is on its way."""

    slug: str
    product: str
    support: str
    desired_version: str
    current_version: str | None
    previous_version: str | None
    state: str
    activate: str
    versions: list[RuntimeVersionView]
    allowed_actions: list[str]


class PlatformPath(Out, frozen=True):
    """The platform installs, updates and repairs what is below it; nobody on the machine can write there."""

    path: str
    what: str
    support: str
    runtime: str | None = None


class UserPath(Out, frozen=True):
    path: str
    what: str


class Ownership(Out, frozen=True):
    """Who answers for what on a machine."""

    platform: list[PlatformPath]
    user: list[UserPath]
    statement: str


class AllocationRuntimes(Out, frozen=True):
    items: list[AllocationRuntimeView]
    next_cursor: str | None
    ownership: Ownership


class RuntimeChangeView(Out, frozen=True):
    """One wish in the history of a machine, and what became of it. Who is no user has no address: `system`."""

    id: str
    action: str
    slug: str
    version: str
    digest: str
    previous_version: str | None
    replaces: str | None
    state: str
    message: str
    asked_by: str
    asked_at: datetime
    applied_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    operation_id: str
    asked_by_email: str = ""
    ended_by_email: str = ""


class RuntimeChangePage(Out, frozen=True):
    items: list[RuntimeChangeView]
    next_cursor: str | None


class RuntimeImageView(Out, frozen=True):
    """`complete`: all of it is here, and it has the digest that it is called by."""

    digest: str
    size_bytes: int
    received_bytes: int
    complete: bool


class RuntimeImageVerdict(Out, frozen=True):
    """What a server found when it read a version's image: `intact`, `damaged` or `missing`.

    A damaged one is gone, as if it had never been sent.
    """

    bundle_id: str
    name: str
    digest: str
    size_bytes: int
    state: str


class CollectImages(In, frozen=True):
    """`older_than_seconds`: what nobody needs, and nobody has touched for so long."""

    older_than_seconds: OlderThan = 86_400


class UnusedImage(Out, frozen=True):
    """`kind`: image, or upload, which is the half of one. `name`: the version that had it, where there was one."""

    digest: str
    size_bytes: int
    kind: str
    name: str


class UnusedImages(Out, frozen=True):
    items: list[UnusedImage]
    next_cursor: str | None
    size_bytes: int
