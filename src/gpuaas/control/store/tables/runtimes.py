"""The catalog of runtimes, and what each machine has of it."""

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import at, id_, metadata, one_of, ref
from gpuaas.model import lifecycle

# One row is one version for one architecture. `project_id`: of that project only; null: of the platform.
managed_runtime_bundles = Table(
    "managed_runtime_bundles",
    metadata,
    id_(),
    ref("project_id", "projects", nullable=True),
    Column("slug", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("architecture", Text, nullable=False),
    Column("product", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("support", Text, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("requirements", JSONB, nullable=False),
    Column("manifest", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    at("published_at", nullable=True),
    at("deprecated_at", nullable=True),
    one_of("state", lifecycle.RUNTIME_BUNDLE.states),
    CheckConstraint("digest ~ '^[0-9a-f]{64}$' AND size > 0", name="image"),
    CheckConstraint("(state = 'draft') = (published_at IS NULL)", name="published_at_when_published"),
    CheckConstraint("(state = 'deprecated') = (deprecated_at IS NOT NULL)", name="deprecated_at_when_deprecated"),
    # A version has one content, for ever: what is on a thousand machines under its name must be the same everywhere.
    Index(
        "uq_managed_runtime_bundles_name",
        "slug",
        "version",
        "architecture",
        text("coalesce(project_id, '')"),
        unique=True,
    ),
    Index("ix_managed_runtime_bundles_digest", "digest"),
)

# One row is one wish for one version on one machine, and what became of it: together they are the history.
allocation_runtimes = Table(
    "allocation_runtimes",
    metadata,
    id_(),
    ref("allocation_id", "allocations"),
    ref("bundle_id", "managed_runtime_bundles"),
    Column("slug", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("previous_version", Text),
    Column("state", Text, nullable=False),
    Column("observed", Text, nullable=False, server_default=text("''")),
    Column("percent", Integer),
    Column("message", Text, nullable=False, server_default=text("''")),
    Column("operation_id", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    at("applied_at", nullable=True),
    at("ended_at", nullable=True),
    Column("ended_by", Text),
    Column("any_architecture", Boolean, nullable=False, server_default=text("false")),
    Column("replaces", Text),  # the slug of a bundle that goes when this one is there
    one_of("state", lifecycle.ALLOCATION_RUNTIME.states),
    one_of("action", ("apply", "rollback", "repair")),
    one_of("observed", ("", "fetching", "ready", "failed")),
    CheckConstraint("(state IN ('applying', 'applied', 'kept')) = (ended_at IS NULL)", name="ended_at_when_ended"),
    CheckConstraint("(ended_at IS NULL) = (ended_by IS NULL)", name="ended_by_somebody"),
    *(
        Index(
            f"uq_allocation_runtimes_{state}",
            "allocation_id",
            "slug",
            unique=True,
            postgresql_where=text(f"state = '{state}'"),
        )
        for state in ("applying", "applied")
    ),
    Index(
        "uq_allocation_runtimes_kept",
        "allocation_id",
        "slug",
        "version",
        unique=True,
        postgresql_where=text("state = 'kept'"),
    ),
    Index("ix_allocation_runtimes_history", "allocation_id", "created_at", "id"),
    Index("ix_allocation_runtimes_bundle_live", "bundle_id", postgresql_where=text("ended_at IS NULL")),
)
