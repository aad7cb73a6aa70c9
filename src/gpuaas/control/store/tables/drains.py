"""Nodes and slots that get nothing new, because somebody wants to work on them."""

from sqlalchemy import Column, Index, Table, Text, text

from gpuaas.control.store.tables.base import at, metadata, ref

# `deadline`: what still runs there then is released. Null: it may stay.
drains = Table(
    "drains",
    metadata,
    Column("target_id", Text, primary_key=True),  # the node's id, or the slot's
    ref("node_id", "nodes"),
    ref("slot_id", "slots", nullable=True),
    Column("reason", Text, nullable=False),
    ref("created_by", "users"),
    at("created_at"),
    at("deadline", nullable=True),
    at("warned_at", nullable=True),
    Index("ix_drains_node_id", "node_id"),
    Index("ix_drains_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL")),
)
