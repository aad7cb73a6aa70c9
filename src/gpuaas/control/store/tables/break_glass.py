"""Operators at tenants' objects."""

from sqlalchemy import CheckConstraint, Column, Index, Table, Text, text

from gpuaas.control.store.tables.base import at, id_, metadata, ref

break_glass = Table(
    "break_glass",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("user_id", "users"),
    Column("reason", Text, nullable=False),
    at("created_at"),
    at("expires_at"),
    at("ended_at", nullable=True),
    Column("ended_by", Text),
    CheckConstraint("(ended_at IS NULL) = (ended_by IS NULL)", name="ended_by_somebody"),
    CheckConstraint("expires_at <= created_at + interval '8 hours'", name="not_for_long"),
    Index("uq_break_glass_open", "user_id", "org_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("ix_break_glass_org", "org_id", "created_at", "id"),
)
