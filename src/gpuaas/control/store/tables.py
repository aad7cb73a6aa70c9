"""The schema. What must never be true at once is refused here, by the database, not by code that remembers to check."""

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.model import lifecycle, permission

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> Column[str]:
    return Column("id", Text, primary_key=True)


def _at(name: str, nullable: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _ref(name: str, target: str, nullable: bool = False) -> Column[str]:
    return Column(name, Text, ForeignKey(f"{target}.id"), nullable=nullable)


def _one_of(column: str, values: Any, name: str | None = None) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in sorted(values))
    return CheckConstraint(f"{column} IN ({listed})", name=name or f"{column}_known")


def _app_columns() -> list[Any]:
    """What every event, audit entry, usage record and operation says about the app it belongs to (none: null)."""
    return [
        Column("correlation_id", Text),
        Column("app_instance_id", Text),
        Column("operating_mode", Text),
        Column("control_plane_scope", Text),
        Column("runtime_backend", Text),
        Column("tenant_boundary_mode", Text),
        CheckConstraint(
            "operating_mode IS NULL OR (operating_mode, control_plane_scope, tenant_boundary_mode) IN ("
            "('tenant_dedicated', 'project', 'tenant_isolated'), ('tenant_dedicated', 'tenant', 'tenant_isolated'), "
            "('platform_managed', 'platform', 'shared_service'))",
            name="operating_mode_combination",
        ),
        CheckConstraint(
            "runtime_backend IS NULL OR runtime_backend IN ('k8s', 'slurm', 'ray', 'bare_metal')",
            name="runtime_backend_known",
        ),
    ]


# One row. `fingerprint` names the physical database; when it differs, this is a copy or a restored backup.
store = Table(
    "store",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    Column("id", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    CheckConstraint("single", name="one_row"),
)

# --- identity -----------------------------------------------------------------------------------------------------

orgs = Table(
    "orgs",
    metadata,
    _id(),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("audit_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("audit_hash", LargeBinary, nullable=False, server_default=text("'\\x'::bytea")),
    _at("created_at"),
)

projects = Table(
    "projects",
    metadata,
    _id(),
    _ref("org_id", "orgs"),
    Column("slug", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("event_seq", BigInteger, nullable=False, server_default=text("0")),
    _at("created_at"),
    Column("open_network", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("org_id", "slug"),
)

users = Table(
    "users",
    metadata,
    _id(),
    Column("email", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("password_hash", Text),
    Column("platform_role", Text),
    _at("created_at"),
    _at("disabled_at", nullable=True),
    CheckConstraint("email = lower(email)", name="email_lower"),
    _one_of("platform_role", permission.PLATFORM_ROLES),
)

org_members = Table(
    "org_members",
    metadata,
    Column("org_id", Text, ForeignKey("orgs.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    _one_of("role", permission.ORG_ROLES),
)

memberships = Table(
    "memberships",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    _at("created_at"),
    _one_of("role", permission.PROJECT_ROLES),
)

tokens = Table(
    "tokens",
    metadata,
    _id(),
    _ref("user_id", "users"),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False),
    _at("created_at"),
    _at("expires_at"),
    _at("revoked_at", nullable=True),
    _at("last_used_at", nullable=True),
    Index("ix_tokens_user_id", "user_id"),
)

ssh_keys = Table(
    "ssh_keys",
    metadata,
    _id(),
    _ref("user_id", "users"),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("blob", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    _at("created_at"),
    UniqueConstraint("user_id", "name"),
    UniqueConstraint("user_id", "fingerprint"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JSONB, nullable=False),
    Column("body", LargeBinary),
    Column("project_id", Text),
    _at("created_at"),
    Index("ix_idempotency_keys_created_at", "created_at"),
)

# --- nodes --------------------------------------------------------------------------------------------------------

join_tokens = Table(
    "join_tokens",
    metadata,
    _id(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    _ref("org_id", "orgs", nullable=True),
    Column("approve_slots", Boolean, nullable=False),
    _ref("created_by", "users"),
    _at("created_at"),
    _at("expires_at"),
    _at("used_at", nullable=True),
)

nodes = Table(
    "nodes",
    metadata,
    _id(),
    Column("name", Text, nullable=False),
    _ref("org_id", "orgs", nullable=True),
    Column("public_key", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    Column("synced_store_id", Text),
    Column("approve_slots", Boolean, nullable=False),
    Column("inventory", JSONB),
    Column("agent_version", Text, nullable=False, server_default=text("''")),
    _at("created_at"),
    _at("last_seen_at", nullable=True),
    _one_of("state", lifecycle.NODE.states),
    Index("uq_nodes_name_live", "name", unique=True, postgresql_where=text("state <> 'removed'")),
)

slots = Table(
    "slots",
    metadata,
    _id(),
    _ref("node_id", "nodes"),
    Column("name", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpus", ARRAY(Text), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("numa", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=text("''")),
    _at("created_at"),
    _one_of("state", lifecycle.SLOT.states),
    Index("uq_slots_node_name_live", "node_id", "name", unique=True, postgresql_where=text("state <> 'retired'")),
)

# A GPU is in one slot at most; together with claims below: one live allocation per GPU (I1).
slot_gpus = Table(
    "slot_gpus",
    metadata,
    Column("gpu", Text, primary_key=True),
    _ref("slot_id", "slots"),
)

offers = Table(
    "offers",
    metadata,
    _id(),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("isolation", Text, nullable=False),
    Column("realisations", ARRAY(Text), nullable=False),
    Column("price_micros_per_hour", BigInteger, nullable=False),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    _at("created_at"),
    _one_of("isolation", ("any", "dedicated_node")),
    CheckConstraint("gpu_count >= 0 AND cpus > 0 AND memory_mib > 0", name="positive"),
    CheckConstraint("realisations <@ ARRAY['baremetal', 'gpu_slice'] AND cardinality(realisations) > 0", name="known"),
)

# --- allocations --------------------------------------------------------------------------------------------------

allocations = Table(
    "allocations",
    metadata,
    _id(),
    _ref("org_id", "orgs"),
    _ref("project_id", "projects"),
    Column("name", Text, nullable=False),
    _ref("offer_id", "offers"),
    _ref("owner_id", "users"),
    Column("group_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("previous_state", Text),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    _ref("node_id", "nodes", nullable=True),
    Column("realisation", Text),
    Column("seat", Integer),
    Column("incarnation", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("observed", BigInteger, nullable=False, server_default=text("0")),
    Column("report_epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("report_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("restarts", BigInteger, nullable=False, server_default=text("0")),
    Column("key_ids", ARRAY(Text), nullable=False),
    Column("host_key", Text, nullable=False, server_default=text("''")),
    Column("failure_code", Text),
    Column("failure_message", Text),
    _at("created_at"),
    _at("active_at", nullable=True),
    _at("reaped_at", nullable=True),
    _at("released_at", nullable=True),
    _one_of("state", lifecycle.ALLOCATION.states),
    CheckConstraint("(state = 'unreachable') = (previous_state IS NOT NULL)", name="previous_only_if_unreachable"),
    CheckConstraint("state IN ('queued', 'released') OR node_id IS NOT NULL", name="placed"),
    CheckConstraint("(node_id IS NULL) = (seat IS NULL)", name="seat_with_node"),
    CheckConstraint("observed <= generation", name="observed_not_ahead"),
    Index(
        "uq_allocations_name_live",
        "project_id",
        "name",
        unique=True,
        postgresql_where=text("state <> 'released'"),
    ),
    # A seat (port, uid range) is free again only after proof of reaping.
    Index("uq_allocations_seat_live", "node_id", "seat", unique=True, postgresql_where=text("reaped_at IS NULL")),
    Index("ix_allocations_project_created", "project_id", "created_at", "id"),
    Index("ix_allocations_queued", "created_at", postgresql_where=text("state = 'queued'")),
    Index("ix_allocations_node_live", "node_id", postgresql_where=text("reaped_at IS NULL")),
    Index("ix_allocations_owner_live", "owner_id", postgresql_where=text("state <> 'released'")),
)

claims = Table(
    "claims",
    metadata,
    _id(),
    _ref("slot_id", "slots"),
    _ref("allocation_id", "allocations"),
    Column("state", Text, nullable=False),
    Column("evidence", JSONB),
    _at("created_at"),
    _at("freed_at", nullable=True),
    _one_of("state", lifecycle.CLAIM.states),
    CheckConstraint("(state = 'freed') = (freed_at IS NOT NULL)", name="freed_at_when_freed"),
    Index("uq_claims_slot_live", "slot_id", unique=True, postgresql_where=text("state <> 'freed'")),
    Index("ix_claims_allocation_id", "allocation_id"),
)

# What each node should look like. `good` is the newest body that the node reported ready.
specs = Table(
    "specs",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", JSONB(none_as_null=True)),
    Column("good", JSONB(none_as_null=True)),
    UniqueConstraint("node_id", "revision"),
)

# --- what happened ------------------------------------------------------------------------------------------------

operations = Table(
    "operations",
    metadata,
    _id(),
    Column("kind", Text, nullable=False),
    Column("facet", Text, nullable=False),
    _ref("org_id", "orgs"),
    _ref("project_id", "projects"),
    _ref("allocation_id", "allocations"),
    Column("state", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("phases", JSONB, nullable=False),
    Column("failure_code", Text),
    Column("failure_message", Text),
    Column("created_by", Text, nullable=False),
    _at("created_at"),
    _at("finished_at", nullable=True),
    *_app_columns(),
    _one_of("state", lifecycle.OPERATION.states),
    CheckConstraint("(state = 'running') = (finished_at IS NULL)", name="finished_at_when_ended"),
    Index("uq_operations_open", "allocation_id", "facet", unique=True, postgresql_where=text("state = 'running'")),
    Index("ix_operations_project_created", "project_id", "created_at", "id"),
    Index("ix_operations_allocation", "allocation_id", "created_at"),
)

events = Table(
    "events",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    _ref("org_id", "orgs"),
    Column("type", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    _at("at"),
    *_app_columns(),
    Index("ix_events_object", "object_id"),
)

audit = Table(
    "audit",
    metadata,
    Column("org_id", Text, ForeignKey("orgs.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("project_id", Text),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    _at("at"),
    *_app_columns(),
    Column("hash", LargeBinary, nullable=False),
)

# Intervals in which something costs. Open while `ended_at` is null; at most one open per (resource, component).
usage = Table(
    "usage",
    metadata,
    _id(),
    _ref("org_id", "orgs"),
    _ref("project_id", "projects"),
    Column("resource_id", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("shape", Text, nullable=False),
    _at("started_at"),
    _at("ended_at", nullable=True),
    *_app_columns(),
    CheckConstraint("ended_at IS NULL OR ended_at >= started_at", name="forward"),
    Index("uq_usage_open", "resource_id", "component", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("ix_usage_project_started", "project_id", "started_at"),
)

facts = Table(
    "facts",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("journal_incarnation", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    _at("at"),
    _at("received_at"),
    Index("ix_facts_object", "object_id"),
)

# Logins, as the nodes told of them. The end may be heard before the beginning.
sessions = Table(
    "sessions",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("allocation_id", Text, ForeignKey("allocations.id"), primary_key=True),
    Column("session", Text, primary_key=True),
    _ref("user_id", "users", nullable=True),
    Column("fingerprint", Text, nullable=False, server_default=text("''")),
    Column("source", Text, nullable=False, server_default=text("''")),
    _at("heard_at"),
    _at("opened_at", nullable=True),
    _at("closed_at", nullable=True),
    Column("close_reason", Text),
    CheckConstraint("(closed_at IS NULL) = (close_reason IS NULL)", name="closed_for_a_reason"),
    CheckConstraint("opened_at IS NOT NULL OR closed_at IS NOT NULL", name="opened_or_closed"),
    Index("ix_sessions_allocation", "allocation_id", "heard_at", "session"),
)

# What machines use, as totals since their start. The first one of a minute is kept for a day, the others for an hour.
samples = Table(
    "samples",
    metadata,
    Column("allocation_id", Text, ForeignKey("allocations.id"), primary_key=True),
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("first_of_minute", Boolean, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("cpu_seconds", Double, nullable=False),
    Column("cpus", Double, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("memory_limit_bytes", BigInteger, nullable=False),
    Column("processes", BigInteger, nullable=False),
    Column("sessions", BigInteger, nullable=False),
    Column("oom_kills", BigInteger, nullable=False),
    Column("disk_read_bytes", BigInteger, nullable=False),
    Column("disk_written_bytes", BigInteger, nullable=False),
    Column("disk_used_bytes", BigInteger),
    Column("disk_limit_bytes", BigInteger),
    Column("network_received_bytes", BigInteger, nullable=False),
    Column("network_sent_bytes", BigInteger, nullable=False),
    Column("gpus", JSONB, nullable=False),
    # Disjoint, each for one of the two deletions that the sweep makes.
    Index("ix_samples_kept", "at", postgresql_where=text("first_of_minute")),
    Index("ix_samples_thinned", "at", postgresql_where=text("NOT first_of_minute")),
)
