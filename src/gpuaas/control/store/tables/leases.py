"""How long machines may stay."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Integer, Table, Text

from gpuaas.control.store.tables.base import at, metadata, one_of

leases = Table(
    "leases",
    metadata,
    Column("allocation_id", Text, ForeignKey("allocations.id"), primary_key=True),
    Column("max_seconds", Integer),
    Column("idle_seconds", Integer),
    at("ends_at", nullable=True),
    at("extended_at", nullable=True),
    at("busy_at", nullable=True),
    at("looked_at", nullable=True),
    Column("stage", Text),
    at("stage_at", nullable=True),
    at("excused_at", nullable=True),
    CheckConstraint("(stage IS NULL) = (stage_at IS NULL)", name="stage_since_when"),
    one_of("stage", ("hour", "minutes", "stopped")),
)

lease_policies = Table(
    "lease_policies",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("idle_seconds", Integer),
    Column("idle_gpu_percent", Integer, nullable=False),
    Column("max_seconds", Integer),
    CheckConstraint("idle_gpu_percent BETWEEN 1 AND 100", name="percent"),
)
