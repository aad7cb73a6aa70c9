"""What costs, and what machines use."""

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
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import app_columns, at, id_, metadata, ref

# Intervals in which something costs. Open while `ended_at` is null; at most one open per (resource, component). `shape`
# names what is priced (an offer), `terms` are its outcome and price when the interval began. A trigger refuses every
# change of a closed interval.
usage = Table(
    "usage",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects"),
    Column("resource_id", Text, nullable=False),
    ref("user_id", "users", nullable=True),
    Column("component", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("terms", JSONB),  # null: written by a server that did not know of terms
    Column("gpus", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    at("started_at"),
    at("ended_at", nullable=True),
    *app_columns("usage"),
    CheckConstraint("ended_at IS NULL OR ended_at >= started_at", name="forward"),
    Index("uq_usage_open", "resource_id", "component", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("ix_usage_project_started", "project_id", "started_at"),
    Index("ix_usage_resource", "resource_id", "started_at"),
)

# Time of an interval that is not charged after all. New entries; triggers refuse to change or delete one.
corrections = Table(
    "corrections",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects"),
    ref("usage_id", "usage"),
    at("started_at"),
    at("ended_at"),
    Column("reason", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    CheckConstraint("ended_at > started_at", name="forward"),
    Index("ix_corrections_project_created", "project_id", "created_at"),
    Index("ix_corrections_usage_id", "usage_id"),
)

# Versions of the price list. Never changed or deleted, which triggers see to.
price_books = Table(
    "price_books",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    at("valid_from"),
    Column("prices", JSONB, nullable=False),
    Column("note", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    CheckConstraint("valid_from >= created_at", name="never_in_the_past"),
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

# What a month of a project came to, once nothing of it can change any more. `hash` is of every line.
statements = Table(
    "statements",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects"),
    at("starts_at"),
    at("ends_at"),
    Column("lines", Integer, nullable=False),
    Column("amount_micros", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    at("created_at"),
    UniqueConstraint("project_id", "starts_at"),
)

# What a project, or an org with all its projects, means to spend in a calendar month.
budgets = Table(
    "budgets",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects", nullable=True),
    Column("amount_micros", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    CheckConstraint("amount_micros > 0", name="positive"),
    Index("uq_budgets_project", "project_id", unique=True, postgresql_where=text("project_id IS NOT NULL")),
    Index("uq_budgets_org", "org_id", unique=True, postgresql_where=text("project_id IS NULL")),
)

# Each is told once; a budget of another amount is another one to be told about.
budget_alerts = Table(
    "budget_alerts",
    metadata,
    Column("budget_id", Text, ForeignKey("budgets.id", ondelete="CASCADE"), primary_key=True),
    Column("month", DateTime(timezone=True), primary_key=True),
    Column("amount_micros", BigInteger, primary_key=True),
    Column("percent", Integer, primary_key=True),
    at("created_at"),
)
