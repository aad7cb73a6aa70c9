"""What costs, and what machines use."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import app_columns, at, id_, metadata, ref

# Intervals in which something costs. Open while `ended_at` is null; at most one open per (resource, component).
usage = Table(
    "usage",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects"),
    Column("resource_id", Text, nullable=False),
    Column("component", Text, nullable=False),
    Column("shape", Text, nullable=False),
    at("started_at"),
    at("ended_at", nullable=True),
    *app_columns(),
    CheckConstraint("ended_at IS NULL OR ended_at >= started_at", name="forward"),
    Index("uq_usage_open", "resource_id", "component", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("ix_usage_project_started", "project_id", "started_at"),
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
