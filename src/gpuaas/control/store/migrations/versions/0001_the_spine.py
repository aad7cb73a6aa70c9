"""The spine: identity, nodes, allocations, specs, operations, events, audit, usage"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "idempotency_keys",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "offers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("isolation", sa.Text(), nullable=False),
        sa.Column("realisations", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("price_micros_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("isolation IN ('any', 'dedicated_node')", name=op.f("ck_offers_isolation_known")),
        sa.CheckConstraint(
            "realisations <@ ARRAY['baremetal', 'gpu_slice'] AND cardinality(realisations) > 0",
            name=op.f("ck_offers_known"),
        ),
        sa.CheckConstraint("gpu_count >= 0 AND cpus > 0 AND memory_mib > 0", name=op.f("ck_offers_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offers")),
        sa.UniqueConstraint("slug", name=op.f("uq_offers_slug")),
    )
    op.create_table(
        "orgs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("audit_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("audit_hash", sa.LargeBinary(), server_default=sa.text("'\\x'::bytea"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orgs")),
        sa.UniqueConstraint("slug", name=op.f("uq_orgs_slug")),
    )
    op.create_table(
        "store",
        sa.Column("single", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.CheckConstraint("single", name=op.f("ck_store_one_row")),
        sa.PrimaryKeyConstraint("single", name=op.f("pk_store")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("platform_role", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "platform_role IN ('platform_admin', 'platform_ops')", name=op.f("ck_users_platform_role_known")
        ),
        sa.CheckConstraint("email = lower(email)", name=op.f("ck_users_email_lower")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
    )
    op.create_table(
        "audit",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("app_instance_id", sa.Text(), nullable=True),
        sa.Column("operating_mode", sa.Text(), nullable=True),
        sa.Column("control_plane_scope", sa.Text(), nullable=True),
        sa.Column("runtime_backend", sa.Text(), nullable=True),
        sa.Column("tenant_boundary_mode", sa.Text(), nullable=True),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "operating_mode IS NULL OR (operating_mode, control_plane_scope, tenant_boundary_mode) IN (('tenant_dedicated', 'project', 'tenant_isolated'), ('tenant_dedicated', 'tenant', 'tenant_isolated'), ('platform_managed', 'platform', 'shared_service'))",
            name=op.f("ck_audit_operating_mode_combination"),
        ),
        sa.CheckConstraint(
            "runtime_backend IS NULL OR runtime_backend IN ('k8s', 'slurm', 'ray', 'bare_metal')",
            name=op.f("ck_audit_runtime_backend_known"),
        ),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_audit_org_id")),
        sa.PrimaryKeyConstraint("org_id", "seq", name=op.f("pk_audit")),
    )
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=True),
        sa.Column("approve_slots", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_join_tokens_created_by")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_join_tokens_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_join_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_join_tokens_hash")),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=True),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("synced_store_id", sa.Text(), nullable=True),
        sa.Column("approve_slots", sa.Boolean(), nullable=False),
        sa.Column("inventory", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("agent_version", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('joined', 'lost', 'ready', 'removed')", name=op.f("ck_nodes_state_known")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_nodes_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("public_key", name=op.f("uq_nodes_public_key")),
    )
    op.create_index(
        "uq_nodes_name_live", "nodes", ["name"], unique=True, postgresql_where=sa.text("state <> 'removed'")
    )
    op.create_table(
        "org_members",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.CheckConstraint("role IN ('tenant_admin', 'tenant_member')", name=op.f("ck_org_members_role_known")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_org_members_org_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_org_members_user_id")),
        sa.PrimaryKeyConstraint("org_id", "user_id", name=op.f("pk_org_members")),
    )
    op.create_index(op.f("ix_org_members_user_id"), "org_members", ["user_id"], unique=False)
    op.create_table(
        "projects",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("event_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_projects_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("org_id", "slug", name=op.f("uq_projects_org_id_slug")),
    )
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_ssh_keys_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ssh_keys")),
        sa.UniqueConstraint("user_id", "fingerprint", name=op.f("uq_ssh_keys_user_id_fingerprint")),
        sa.UniqueConstraint("user_id", "name", name=op.f("uq_ssh_keys_user_id_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_tokens_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"], unique=False)
    op.create_table(
        "allocations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("offer_id", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("previous_state", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("realisation", sa.Text(), nullable=True),
        sa.Column("seat", sa.Integer(), nullable=True),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("observed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("report_epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("report_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("restarts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("key_ids", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("host_key", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("failure_code", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("active_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reaped_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'unreachable') = (previous_state IS NOT NULL)",
            name=op.f("ck_allocations_previous_only_if_unreachable"),
        ),
        sa.CheckConstraint(
            "state IN ('active', 'failed', 'provisioning', 'queued', 'released', 'releasing', 'restarting', 'unreachable')",
            name=op.f("ck_allocations_state_known"),
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'released') OR node_id IS NOT NULL", name=op.f("ck_allocations_placed")
        ),
        sa.CheckConstraint("(node_id IS NULL) = (seat IS NULL)", name=op.f("ck_allocations_seat_with_node")),
        sa.CheckConstraint("observed <= generation", name=op.f("ck_allocations_observed_not_ahead")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_allocations_node_id")),
        sa.ForeignKeyConstraint(["offer_id"], ["offers.id"], name=op.f("fk_allocations_offer_id")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_allocations_org_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_allocations_owner_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_allocations_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocations")),
    )
    op.create_index(
        "ix_allocations_node_live",
        "allocations",
        ["node_id"],
        unique=False,
        postgresql_where=sa.text("reaped_at IS NULL"),
    )
    op.create_index("ix_allocations_project_created", "allocations", ["project_id", "created_at", "id"], unique=False)
    op.create_index(
        "ix_allocations_queued",
        "allocations",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index(
        "uq_allocations_name_live",
        "allocations",
        ["project_id", "name"],
        unique=True,
        postgresql_where=sa.text("state <> 'released'"),
    )
    op.create_index(
        "uq_allocations_seat_live",
        "allocations",
        ["node_id", "seat"],
        unique=True,
        postgresql_where=sa.text("reaped_at IS NULL"),
    )
    op.create_table(
        "events",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("app_instance_id", sa.Text(), nullable=True),
        sa.Column("operating_mode", sa.Text(), nullable=True),
        sa.Column("control_plane_scope", sa.Text(), nullable=True),
        sa.Column("runtime_backend", sa.Text(), nullable=True),
        sa.Column("tenant_boundary_mode", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "operating_mode IS NULL OR (operating_mode, control_plane_scope, tenant_boundary_mode) IN (('tenant_dedicated', 'project', 'tenant_isolated'), ('tenant_dedicated', 'tenant', 'tenant_isolated'), ('platform_managed', 'platform', 'shared_service'))",
            name=op.f("ck_events_operating_mode_combination"),
        ),
        sa.CheckConstraint(
            "runtime_backend IS NULL OR runtime_backend IN ('k8s', 'slurm', 'ray', 'bare_metal')",
            name=op.f("ck_events_runtime_backend_known"),
        ),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_events_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_events_project_id")),
        sa.PrimaryKeyConstraint("project_id", "seq", name=op.f("pk_events")),
    )
    op.create_index("ix_events_object", "events", ["object_id"], unique=False)
    op.create_table(
        "facts",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("journal_incarnation", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_facts_node_id")),
        sa.PrimaryKeyConstraint("node_id", "journal_incarnation", "sequence", name=op.f("pk_facts")),
    )
    op.create_index("ix_facts_object", "facts", ["object_id"], unique=False)
    op.create_table(
        "memberships",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("role IN ('admin', 'editor', 'viewer')", name=op.f("ck_memberships_role_known")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_memberships_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_memberships_user_id")),
        sa.PrimaryKeyConstraint("project_id", "user_id", name=op.f("pk_memberships")),
    )
    op.create_index(op.f("ix_memberships_user_id"), "memberships", ["user_id"], unique=False)
    op.create_table(
        "slots",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpus", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("numa", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "state IN ('approved', 'proposed', 'quarantined', 'retired')", name=op.f("ck_slots_state_known")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_slots_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slots")),
    )
    op.create_index(
        "uq_slots_node_name_live",
        "slots",
        ["node_id", "name"],
        unique=True,
        postgresql_where=sa.text("state <> 'retired'"),
    )
    op.create_table(
        "specs",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("body", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("good", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_specs_node_id")),
        sa.PrimaryKeyConstraint("node_id", "id", name=op.f("pk_specs")),
        sa.UniqueConstraint("node_id", "revision", name=op.f("uq_specs_node_id_revision")),
    )
    op.create_table(
        "usage",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource_id", sa.Text(), nullable=False),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("app_instance_id", sa.Text(), nullable=True),
        sa.Column("operating_mode", sa.Text(), nullable=True),
        sa.Column("control_plane_scope", sa.Text(), nullable=True),
        sa.Column("runtime_backend", sa.Text(), nullable=True),
        sa.Column("tenant_boundary_mode", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "operating_mode IS NULL OR (operating_mode, control_plane_scope, tenant_boundary_mode) IN (('tenant_dedicated', 'project', 'tenant_isolated'), ('tenant_dedicated', 'tenant', 'tenant_isolated'), ('platform_managed', 'platform', 'shared_service'))",
            name=op.f("ck_usage_operating_mode_combination"),
        ),
        sa.CheckConstraint(
            "runtime_backend IS NULL OR runtime_backend IN ('k8s', 'slurm', 'ray', 'bare_metal')",
            name=op.f("ck_usage_runtime_backend_known"),
        ),
        sa.CheckConstraint("ended_at IS NULL OR ended_at >= started_at", name=op.f("ck_usage_forward")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_usage_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_usage_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    op.create_index("ix_usage_project_started", "usage", ["project_id", "started_at"], unique=False)
    op.create_index(
        "uq_usage_open",
        "usage",
        ["resource_id", "component"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "claims",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("slot_id", sa.Text(), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("freed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'freed') = (freed_at IS NOT NULL)", name=op.f("ck_claims_freed_at_when_freed")),
        sa.CheckConstraint("state IN ('freed', 'held', 'scrubbing')", name=op.f("ck_claims_state_known")),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_claims_allocation_id")),
        sa.ForeignKeyConstraint(["slot_id"], ["slots.id"], name=op.f("fk_claims_slot_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claims")),
    )
    op.create_index("ix_claims_allocation_id", "claims", ["allocation_id"], unique=False)
    op.create_index(
        "uq_claims_slot_live", "claims", ["slot_id"], unique=True, postgresql_where=sa.text("state <> 'freed'")
    )
    op.create_table(
        "operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("facet", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("phases", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("failure_code", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("app_instance_id", sa.Text(), nullable=True),
        sa.Column("operating_mode", sa.Text(), nullable=True),
        sa.Column("control_plane_scope", sa.Text(), nullable=True),
        sa.Column("runtime_backend", sa.Text(), nullable=True),
        sa.Column("tenant_boundary_mode", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(state = 'running') = (finished_at IS NULL)", name=op.f("ck_operations_finished_at_when_ended")
        ),
        sa.CheckConstraint(
            "operating_mode IS NULL OR (operating_mode, control_plane_scope, tenant_boundary_mode) IN (('tenant_dedicated', 'project', 'tenant_isolated'), ('tenant_dedicated', 'tenant', 'tenant_isolated'), ('platform_managed', 'platform', 'shared_service'))",
            name=op.f("ck_operations_operating_mode_combination"),
        ),
        sa.CheckConstraint(
            "runtime_backend IS NULL OR runtime_backend IN ('k8s', 'slurm', 'ray', 'bare_metal')",
            name=op.f("ck_operations_runtime_backend_known"),
        ),
        sa.CheckConstraint(
            "state IN ('failed', 'running', 'succeeded', 'superseded')", name=op.f("ck_operations_state_known")
        ),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_operations_allocation_id")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_operations_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_operations_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
    )
    op.create_index("ix_operations_allocation", "operations", ["allocation_id", "created_at"], unique=False)
    op.create_index("ix_operations_project_created", "operations", ["project_id", "created_at", "id"], unique=False)
    op.create_index(
        "uq_operations_open",
        "operations",
        ["allocation_id", "facet"],
        unique=True,
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "slot_gpus",
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("slot_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["slot_id"], ["slots.id"], name=op.f("fk_slot_gpus_slot_id")),
        sa.PrimaryKeyConstraint("gpu", name=op.f("pk_slot_gpus")),
    )


def downgrade() -> None:
    raise SystemExit("There is no way back from the first migration: restore a backup instead.")
