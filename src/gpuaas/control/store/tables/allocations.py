"""Machines, their hold on slots, and what each node should look like."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import at, id_, metadata, one_of, to
from gpuaas.model import lifecycle

HELD = "node_id IS NOT NULL AND reaped_at IS NULL"

allocations = Table(
    "allocations",
    metadata,
    id_(),
    to("org_id"),
    to("project_id"),
    Column("name", Text, nullable=False),
    to("offer_id"),
    to("owner_id"),
    Column("group_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("previous_state", Text),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    to("node_id", nullable=True),
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
    at("created_at"),
    at("active_at", nullable=True),
    at("reaped_at", nullable=True),
    at("released_at", nullable=True),
    Column("preemptible", Boolean, nullable=False, server_default=text("false")),
    one_of("state", lifecycle.ALLOCATION.states),
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
    # What counts against quotas.
    *(
        Index(f"ix_allocations_{scope}_held", f"{scope}_id", postgresql_where=text(HELD))
        for scope in ("org", "project")
    ),
    Index("ix_allocations_owner_live", "owner_id", postgresql_where=text("state <> 'released'")),
)

claims = Table(
    "claims",
    metadata,
    id_(),
    to("slot_id"),
    to("allocation_id"),  # or a scrub's (operations/scrub.py)
    Column("state", Text, nullable=False),
    Column("evidence", JSONB),
    at("created_at"),
    at("freed_at", nullable=True),
    one_of("state", lifecycle.CLAIM.states),
    CheckConstraint("(state = 'freed') = (freed_at IS NOT NULL)", name="freed_at_when_freed"),
    Index("uq_claims_slot_live", "slot_id", unique=True, postgresql_where=text("state <> 'freed'")),
    Index("ix_claims_allocation_id", "allocation_id"),
    Index("ix_claims_slot_freed", "slot_id", "freed_at", postgresql_where=text("state = 'freed'")),
)

# What each node should look like. `good` is the newest body that the node reported ready.
specs = Table(
    "specs",
    metadata,
    Column("node_id", Text, primary_key=True),  # whose revision it takes in the statement that writes it
    Column("id", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", JSONB(none_as_null=True)),
    Column("good", JSONB(none_as_null=True)),
    UniqueConstraint("node_id", "revision"),
)
