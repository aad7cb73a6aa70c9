"""Who may do what."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
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
from gpuaas.model import permission
from gpuaas.model.identity import TOKEN_KINDS, USER_KINDS

orgs = Table(
    "orgs",
    metadata,
    id_(),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("audit_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("audit_hash", LargeBinary, nullable=False, server_default=text("'\\x'::bytea")),
    at("created_at"),
)

projects = Table(
    "projects",
    metadata,
    id_(),
    ref("org_id", "orgs"),
    Column("slug", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("event_seq", BigInteger, nullable=False, server_default=text("0")),
    at("created_at"),
    Column("open_network", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("org_id", "slug"),
)

users = Table(
    "users",
    metadata,
    id_(),
    Column("email", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("password_hash", Text),
    Column("platform_role", Text),
    at("created_at"),
    at("disabled_at", nullable=True),
    Column("kind", Text, nullable=False, server_default=text("'person'")),
    ref("project_id", "projects", nullable=True),
    # False: whoever held an invitation said so. Nobody else may rely on it, least of all a login by that address.
    Column("email_proven", Boolean, nullable=False, server_default=text("true")),
    CheckConstraint("email = lower(email)", name="email_lower"),
    one_of("platform_role", (*permission.PLATFORM_ROLES, permission.PLATFORM_BUILDER)),
    one_of("kind", USER_KINDS),
    CheckConstraint("(kind = 'service') = (project_id IS NOT NULL)", name="service_in_a_project"),
    CheckConstraint(
        "kind = 'person' OR (password_hash IS NULL AND platform_role IS NULL)", name="service_never_logs_in"
    ),
    Index("ix_users_project_id", "project_id", postgresql_where=text("project_id IS NOT NULL")),
)

org_members = Table(
    "org_members",
    metadata,
    Column("org_id", Text, ForeignKey("orgs.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    one_of("role", permission.ORG_ROLES),
)

memberships = Table(
    "memberships",
    metadata,
    Column("project_id", Text, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Text, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    at("created_at"),
    # Follows the groups that the identity provider names, and goes with them.
    Column("managed", Boolean, nullable=False, server_default=text("false")),
    one_of("role", permission.PROJECT_ROLES),
)

tokens = Table(
    "tokens",
    metadata,
    id_(),
    ref("user_id", "users"),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("kind", Text, nullable=False, server_default=text("'api'")),
    Column("source", Text, nullable=False, server_default=text("''")),
    at("created_at"),
    at("expires_at"),
    at("revoked_at", nullable=True),
    at("last_used_at", nullable=True),
    one_of("kind", TOKEN_KINDS),
    Index("ix_tokens_user_id", "user_id"),
)

ssh_keys = Table(
    "ssh_keys",
    metadata,
    id_(),
    ref("user_id", "users"),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("blob", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    at("created_at"),
    UniqueConstraint("user_id", "name"),
    UniqueConstraint("user_id", "fingerprint"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", JSONB, nullable=False),
    Column("body", LargeBinary),
    Column("project_id", Text),
    at("created_at"),
    Index("ix_idempotency_keys_created_at", "created_at"),
)
