"""Nodes, their slots, and what is offered on them."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import at, id_, metadata, one_of, ref
from gpuaas.model import lifecycle

join_tokens = Table(
    "join_tokens",
    metadata,
    id_(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    ref("org_id", "orgs", nullable=True),
    Column("approve_slots", Boolean, nullable=False),
    ref("created_by", "users"),
    at("created_at"),
    at("expires_at"),
    at("used_at", nullable=True),
)

nodes = Table(
    "nodes",
    metadata,
    id_(),
    Column("name", Text, nullable=False),
    ref("org_id", "orgs", nullable=True),
    Column("public_key", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    Column("synced_store_id", Text),
    Column("approve_slots", Boolean, nullable=False),
    Column("inventory", JSONB),
    Column("agent_version", Text, nullable=False, server_default=text("''")),
    at("created_at"),
    at("last_seen_at", nullable=True),
    Column("clock_skew_seconds", Double),  # ahead of the server that heard it last
    Column("runtimes", Boolean, nullable=False, server_default=text("false")),  # its agent can show some to a machine
    one_of("state", lifecycle.NODE.states),
    Index("uq_nodes_name_live", "name", unique=True, postgresql_where=text("state <> 'removed'")),
)

# Machines that a node holds and this database, restored from an older copy, does not know: their seats are taken.
strangers = Table(
    "strangers",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("seat", Integer, primary_key=True),
    Column("holder", Text, nullable=False),
    at("seen_at"),
)

# The same machines, with what a tombstone for one has to say.
strays = Table(
    "strays",
    metadata,
    Column("node_id", Text, ForeignKey("nodes.id"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("slots", ARRAY(Text), nullable=False),
    at("seen_at"),
    at("removed_at", nullable=True),  # an operator has asked for it
)

slots = Table(
    "slots",
    metadata,
    id_(),
    ref("node_id", "nodes"),
    Column("name", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpus", ARRAY(Text), nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("numa", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, server_default=text("''")),
    Column("link_group", Integer),  # of its node: GPUs with the same number are linked directly
    Column("card", Text),  # the GPU that its MIG instances are parts of
    at("created_at"),
    one_of("state", lifecycle.SLOT.states),
    Index("uq_slots_node_name_live", "node_id", "name", unique=True, postgresql_where=text("state <> 'retired'")),
    Index("ix_slots_node_retired", "node_id", postgresql_where=text("state = 'retired'")),
)

# A GPU is in one slot at most; together with claims below: one live allocation per GPU (I1). It is whole or cut into
# MIG instances, never both: what is in slots refers to one and the same row of `cards`, which says one of the two.
slot_gpus = Table(
    "slot_gpus",
    metadata,
    Column("gpu", Text, primary_key=True),
    ref("slot_id", "slots"),
    Column("card", Text),  # itself, or the GPU that it is an instance of
    Column("cut", Boolean),
    ForeignKeyConstraint(["card", "cut"], ["cards.gpu", "cards.cut"]),
    Index("ix_slot_gpus_card", "card"),
)

cards = Table(
    "cards",
    metadata,
    Column("gpu", Text, primary_key=True),
    Column("cut", Boolean, nullable=False),
    UniqueConstraint("gpu", "cut"),
)

offers = Table(
    "offers",
    metadata,
    id_(),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("gpu_model", Text, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("isolation", Text, nullable=False),
    Column("realisations", ARRAY(Text), nullable=False),
    Column("price_micros_per_hour", BigInteger, nullable=False),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    at("created_at"),
    one_of("isolation", ("any", "dedicated_node")),
    CheckConstraint("gpu_count >= 0 AND cpus > 0 AND memory_mib > 0", name="positive"),
    CheckConstraint("realisations <@ ARRAY['baremetal', 'gpu_slice'] AND cardinality(realisations) > 0", name="known"),
)
