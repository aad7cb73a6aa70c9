"""Managed runtimes as the control plane sees them: what there is, and what a machine has of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuaas.model.lifecycle import ALLOCATION_RUNTIME

ROOT = "/opt/gpuaas/runtimes"
MOST_BUNDLES = 16  # of one machine
MOST_KEPT = 3  # versions of one bundle that lie beside the current one

# What a project may publish of its own: its images lie on the disk of the server.
MOST_OF_A_PROJECT = 64  # versions that are drafts or published
MOST_BYTES_OF_A_PROJECT = 100 * 2**30
MOST_BYTES_OF_ITS_IMAGE = 16 * 2**30


@dataclass(frozen=True)
class RuntimeBundle:
    """One version of a bundle, for one architecture."""

    id: str
    project_id: str | None  # None: of the platform, for everybody
    slug: str
    version: str
    architecture: str
    product: str
    description: str
    family: str  # of GPUs: any, none, nvidia, amd
    support: str
    is_default: bool  # what the bare slug means
    digest: str
    size: int
    requirements: dict[str, Any]
    state: str
    created_by: str
    created_at: datetime
    published_at: datetime | None
    deprecated_at: datetime | None

    @property
    def name(self) -> str:
        return f"{self.slug}:{self.version}"

    @property
    def root(self) -> str:
        """Where a machine sees it."""
        return f"{ROOT}/{self.slug}/{self.version}"


@dataclass(frozen=True)
class AllocationRuntime:
    """A version that somebody wanted on a machine, and what became of it."""

    id: str
    allocation_id: str
    bundle_id: str
    slug: str
    version: str
    action: str  # apply, rollback, repair
    previous_version: str | None  # what was current when it was asked for
    state: str
    observed: str  # what the node said of it last: fetching, ready, failed; empty: nothing yet
    percent: int | None
    message: str
    operation_id: str
    created_by: str
    created_at: datetime
    applied_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    replaces: str | None = None  # another bundle, which goes when this one is there
    any_architecture: bool = False  # chosen by name: of a machine that waits, where it gets its place decides

    @property
    def live(self) -> bool:
        return self.state not in ALLOCATION_RUNTIME.ends


@dataclass(frozen=True)
class Shown:
    """A version that a machine should see, as its spec says it."""

    slug: str
    version: str
    digest: str
    size: int
    current: bool
    applied_at: datetime


def shown(live: list[tuple[AllocationRuntime, RuntimeBundle]]) -> list[Shown]:
    """What the live rows of a machine mean: each version once; of each bundle the newest wish is current."""
    by_slug: dict[str, list[tuple[AllocationRuntime, RuntimeBundle]]] = {}
    for row, bundle in sorted(live, key=lambda each: _rank(each[0])):
        by_slug.setdefault(row.slug, []).append((row, bundle))
    found = []
    for slug, rows in sorted(by_slug.items()):
        versions: set[str] = set()
        for row, bundle in rows:
            if row.version in versions:
                continue
            at = row.applied_at or row.created_at
            found.append(Shown(slug, row.version, bundle.digest, bundle.size, not versions, at))
            versions.add(row.version)
    return found


def _rank(row: AllocationRuntime) -> tuple[int, float]:
    """What is wanted comes before what is there, and that before what lies beside it, the newest first."""
    return ("applying", "applied", "kept").index(row.state), -row.created_at.timestamp()
