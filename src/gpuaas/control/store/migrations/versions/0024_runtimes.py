"""The catalog of runtimes, and what machines have of it"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("runtimes", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.create_table(
        "managed_runtime_bundles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("product", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("support", sa.Text(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("requirements", postgresql.JSONB(), nullable=False),
        sa.Column("manifest", postgresql.JSONB(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deprecated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('deprecated', 'draft', 'published')", name=op.f("ck_managed_runtime_bundles_state_known")
        ),
        sa.CheckConstraint("digest ~ '^[0-9a-f]{64}$' AND size > 0", name=op.f("ck_managed_runtime_bundles_image")),
        sa.CheckConstraint(
            "(state = 'draft') = (published_at IS NULL)",
            name=op.f("ck_managed_runtime_bundles_published_at_when_published"),
        ),
        sa.CheckConstraint(
            "(state = 'deprecated') = (deprecated_at IS NOT NULL)",
            name=op.f("ck_managed_runtime_bundles_deprecated_at_when_deprecated"),
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_managed_runtime_bundles_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_managed_runtime_bundles")),
    )
    op.create_index(
        "uq_managed_runtime_bundles_name",
        "managed_runtime_bundles",
        ["slug", "version", "architecture", sa.text("coalesce(project_id, '')")],
        unique=True,
    )
    op.create_index("ix_managed_runtime_bundles_digest", "managed_runtime_bundles", ["digest"])
    op.create_table(
        "allocation_runtimes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("bundle_id", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("previous_version", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("observed", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=True),
        sa.Column("message", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('applied', 'applying', 'failed', 'kept', 'removed', 'replaced', 'superseded')",
            name=op.f("ck_allocation_runtimes_state_known"),
        ),
        sa.CheckConstraint(
            "action IN ('apply', 'repair', 'rollback')", name=op.f("ck_allocation_runtimes_action_known")
        ),
        sa.CheckConstraint(
            "observed IN ('', 'failed', 'fetching', 'ready')", name=op.f("ck_allocation_runtimes_observed_known")
        ),
        sa.CheckConstraint(
            "(state IN ('applying', 'applied', 'kept')) = (ended_at IS NULL)",
            name=op.f("ck_allocation_runtimes_ended_at_when_ended"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NULL) = (ended_by IS NULL)", name=op.f("ck_allocation_runtimes_ended_by_somebody")
        ),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name=op.f("fk_allocation_runtimes_allocation_id")
        ),
        sa.ForeignKeyConstraint(
            ["bundle_id"], ["managed_runtime_bundles.id"], name=op.f("fk_allocation_runtimes_bundle_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allocation_runtimes")),
    )
    for state in ("applying", "applied"):
        op.create_index(
            f"uq_allocation_runtimes_{state}",
            "allocation_runtimes",
            ["allocation_id", "slug"],
            unique=True,
            postgresql_where=sa.text(f"state = '{state}'"),
        )
    op.create_index(
        "uq_allocation_runtimes_kept",
        "allocation_runtimes",
        ["allocation_id", "slug", "version"],
        unique=True,
        postgresql_where=sa.text("state = 'kept'"),
    )
    op.create_index("ix_allocation_runtimes_history", "allocation_runtimes", ["allocation_id", "created_at", "id"])
    op.create_index(
        "ix_allocation_runtimes_bundle_live",
        "allocation_runtimes",
        ["bundle_id"],
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("allocation_runtimes")
    op.drop_table("managed_runtime_bundles")
    op.drop_column("nodes", "runtimes")
