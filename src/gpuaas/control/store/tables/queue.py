"""Launches that wait, and the nodes that are kept free for the first of them."""

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import at, metadata, ref

# One row for a group, as long as one of its machines is queued.
queue = Table(
    "queue",
    metadata,
    Column("group_id", Text, primary_key=True),
    ref("org_id", "orgs"),
    ref("project_id", "projects"),
    ref("offer_id", "offers"),
    Column("gpu_model", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("reasons", JSONB, nullable=False),
    at("created_at"),
    at("expires_at", nullable=True),
    Column("preemptible", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("priority BETWEEN 0 AND 9", name="priority_known"),
    Index("ix_queue_expires_at", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)

# Others place nothing there, so that who is first is not passed for ever by those who need less.
holds = Table(
    "holds",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("group_id", Text, ForeignKey("queue.group_id"), nullable=False, index=True),
)
