"""Single sign-on: whom the provider knows, what orgs make of it, logins under way."""

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store.tables.base import at, id_, metadata, ref

oidc_identities = Table(
    "oidc_identities",
    metadata,
    Column("issuer", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    ref("user_id", "users"),
    at("created_at"),
    UniqueConstraint("user_id", "issuer"),
)

org_oidc = Table(
    "org_oidc",
    metadata,
    Column("org_id", Text, ForeignKey("orgs.id"), primary_key=True),
    Column("domains", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("groups", JSONB, nullable=False, server_default=text("'[]'")),
)

# Hashes only: the secrets are in the browser (cookie), on their way through it (state), and in the CLI (code).
oidc_logins = Table(
    "oidc_logins",
    metadata,
    id_(),
    Column("state_hash", LargeBinary, nullable=False, unique=True),
    Column("cookie_hash", LargeBinary, nullable=False),
    Column("redirect", Text),
    Column("client_state", Text, nullable=False),
    Column("challenge", Text, nullable=False),
    at("created_at"),
    at("expires_at"),
    at("used_at", nullable=True),
    ref("user_id", "users", nullable=True),
    Column("code_hash", LargeBinary, unique=True),
    CheckConstraint("(user_id IS NULL) = (code_hash IS NULL)", name="a_code_is_somebodys"),
    Index("ix_oidc_logins_expires_at", "expires_at"),
)
