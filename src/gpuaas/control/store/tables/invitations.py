"""Invitations into orgs and projects."""

from sqlalchemy import CheckConstraint, Column, Index, LargeBinary, Table, Text, text

from gpuaas.control.store.tables.base import at, id_, metadata, ref

invitations = Table(
    "invitations",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects", nullable=True),
    Column("email", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    ref("created_by", "users"),
    at("created_at"),
    at("expires_at"),
    at("ended_at", nullable=True),
    ref("accepted_by", "users", nullable=True),
    CheckConstraint("email = lower(email)", name="email_lower"),
    CheckConstraint(
        "CASE WHEN project_id IS NULL THEN role IN ('tenant_member', 'tenant_admin') "
        "ELSE role IN ('viewer', 'editor', 'admin') END",
        name="role_fits",
    ),
    CheckConstraint("accepted_by IS NULL OR ended_at IS NOT NULL", name="accepted_once"),
    Index("ix_invitations_open", "org_id", "project_id", postgresql_where=text("ended_at IS NULL")),
)
