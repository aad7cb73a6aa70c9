"""Events out: where to, how far each webhook has come in each feed, and what is or was on its way."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from gpuaas.control.store.tables.base import at, id_, metadata, one_of, ref
from gpuaas.model import lifecycle

# Every delivery is signed with the secret, so it can be read again: it is sealed (kit/seal.py) where there is a key.
webhooks = Table(
    "webhooks",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    ref("project_id", "projects", nullable=True),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("types", ARRAY(Text), nullable=False),
    Column("secret", Text, nullable=False),
    Column("previous_secret", Text),
    at("previous_until", nullable=True),
    Column("created_by", Text, nullable=False),
    at("created_at"),
    at("disabled_at", nullable=True),
    # Whoever sends for it right now, and until when nobody else does.
    Column("claim", Text),
    at("claimed_until", nullable=True),
    at("turn_at", nullable=True),
    UniqueConstraint("org_id", "project_id", "name", postgresql_nulls_not_distinct=True),
    CheckConstraint("(claim IS NULL) = (claimed_until IS NULL)", name="claimed_until_when"),
    CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="previous_until_when"),
)

webhook_cursors = Table(
    "webhook_cursors",
    metadata,
    Column("webhook_id", Text, ForeignKey("webhooks.id", ondelete="CASCADE"), primary_key=True),
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    id_(),
    # In the order in which they are tried first.
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("webhook_id", Text, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("replay", Boolean, nullable=False, server_default=text("false")),
    at("next_at", nullable=True),
    at("created_at"),
    at("attempted_at", nullable=True),
    at("finished_at", nullable=True),
    Column("status", Integer),
    Column("error", Text, nullable=False, server_default=text("''")),
    Column("duration_ms", Integer),
    one_of("state", lifecycle.DELIVERY.states),
    CheckConstraint("(state = 'pending') = (finished_at IS NULL)", name="finished_at_when_ended"),
    Index("ix_deliveries_pending", "webhook_id", "number", postgresql_where=text("state = 'pending'")),
    Index("ix_deliveries_webhook", "webhook_id", "number"),
    Index("ix_deliveries_finished", "finished_at"),
)
