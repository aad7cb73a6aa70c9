"""What happened: operations, events, audit, facts, logins."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, LargeBinary, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import app_columns, at, id_, metadata, one_of, ref, to
from gpuaas.model import lifecycle

operations = Table(
    "operations",
    metadata,
    id_(),
    Column("kind", Text, nullable=False),
    Column("facet", Text, nullable=False),
    to("org_id"),
    to("project_id"),
    to("allocation_id"),
    Column("state", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("phases", JSONB, nullable=False),
    Column("failure_code", Text),
    Column("failure_message", Text),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    at("finished_at", nullable=True),
    *app_columns("operations"),
    one_of("state", lifecycle.OPERATION.states),
    CheckConstraint("(state = 'running') = (finished_at IS NULL)", name="finished_at_when_ended"),
    Index("uq_operations_open", "allocation_id", "facet", unique=True, postgresql_where=text("state = 'running'")),
    Index("ix_operations_project_created", "project_id", "created_at", "id"),
    Index("ix_operations_allocation", "allocation_id", "created_at"),
)

# Each is numbered by the row that it belongs to, in the statement that writes it: a foreign key would look it up again.
events = Table(
    "events",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("org_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    at("at"),
    *app_columns("events"),
    Index("ix_events_object", "object_id"),
)

audit = Table(
    "audit",
    metadata,
    Column("org_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("project_id", Text),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object_kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    at("at"),
    *app_columns("audit"),
    Column("hash", LargeBinary, nullable=False),
)

facts = Table(
    "facts",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("journal_incarnation", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("object_id", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    at("at"),
    at("received_at"),
    Index("ix_facts_object", "object_id"),
)

# Logins, as the nodes told of them. The end may be heard before the beginning.
sessions = Table(
    "sessions",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("allocation_id", Text, ForeignKey("allocations.id"), primary_key=True),
    Column("session", Text, primary_key=True),
    ref("user_id", "users", nullable=True),
    Column("fingerprint", Text, nullable=False, server_default=text("''")),
    Column("source", Text, nullable=False, server_default=text("''")),
    at("heard_at"),
    at("opened_at", nullable=True),
    at("closed_at", nullable=True),
    Column("close_reason", Text),
    CheckConstraint("(closed_at IS NULL) = (close_reason IS NULL)", name="closed_for_a_reason"),
    CheckConstraint("opened_at IS NOT NULL OR closed_at IS NOT NULL", name="opened_or_closed"),
    Index("ix_sessions_allocation", "allocation_id", "heard_at", "session"),
)
