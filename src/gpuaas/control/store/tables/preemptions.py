"""Machines that were told to give way to somebody."""

from sqlalchemy import Column, ForeignKey, Index, Table, Text

from gpuaas.control.store.tables.base import at, metadata

# `wanted_by` is a group in the line, or a reservation. Written and removed only under the lock of its row, so that a
# machine is never released for somebody who has found another place.
preemptions = Table(
    "preemptions",
    metadata,
    Column("allocation_id", Text, ForeignKey("allocations.id"), primary_key=True),
    Column("wanted_by", Text, nullable=False),
    at("warned_at"),
    at("due_at"),
    Index("ix_preemptions_wanted_by", "wanted_by"),
)
