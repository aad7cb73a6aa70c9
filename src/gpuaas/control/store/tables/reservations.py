"""Capacity that is booked ahead."""

from sqlalchemy import ARRAY, CheckConstraint, Column, ForeignKey, Index, Integer, Table, Text, text

from gpuaas.control.store.tables.base import at, id_, metadata, one_of, ref
from gpuaas.model import lifecycle

reservations = Table(
    "reservations",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects"),
    Column("name", Text, nullable=False),
    ref("offer_id", "offers"),
    Column("count", Integer, nullable=False),
    ref("owner_id", "users"),
    Column("state", Text, nullable=False),
    at("starts_at"),
    at("ends_at"),
    Column("launch_name", Text),
    Column("key_ids", ARRAY(Text), nullable=False),
    Column("trouble", Text),
    at("ready_at", nullable=True),
    Column("group_id", Text),
    at("created_at"),
    at("ended_at", nullable=True),
    one_of("state", lifecycle.RESERVATION.states),
    CheckConstraint("count > 0 AND starts_at < ends_at", name="window"),
    CheckConstraint("(state = 'booked') = (ended_at IS NULL)", name="ended_at_when_ended"),
    CheckConstraint("(state = 'used') = (group_id IS NOT NULL)", name="became_something_when_used"),
    Index("uq_reservations_name_booked", "project_id", "name", unique=True, postgresql_where=text("state = 'booked'")),
    Index("ix_reservations_project_id_starts_at", "project_id", "starts_at"),
    Index("ix_reservations_booked", "starts_at", postgresql_where=text("state = 'booked'")),
)

# The slots that are kept for one that is booked. Two whose times meet never have the same slot: they are written under
# the lock of the slot's node. `free_at` is later than the window's end: a machine has its GPUs a while after its lease.
bookings = Table(
    "bookings",
    metadata,
    Column("reservation_id", Text, ForeignKey("reservations.id"), primary_key=True),
    Column("slot_id", Text, ForeignKey("slots.id"), primary_key=True),
    ref("node_id", "nodes"),
    Column("seat", Integer, nullable=False),
    Column("realisation", Text, nullable=False),
    at("starts_at"),
    at("free_at"),
    Index("ix_bookings_slot_id", "slot_id"),
    Index("ix_bookings_node_id", "node_id"),
)
