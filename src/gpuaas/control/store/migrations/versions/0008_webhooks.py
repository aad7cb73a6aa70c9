"""Webhooks, how far they have come, and what is on its way"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text(), nullable=True),
        sa.Column("previous_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim", sa.Text(), nullable=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("turn_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(claim IS NULL) = (claimed_until IS NULL)", name=op.f("ck_webhooks_claimed_until_when")),
        sa.CheckConstraint(
            "(previous_secret IS NULL) = (previous_until IS NULL)", name=op.f("ck_webhooks_previous_until_when")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_webhooks_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_webhooks_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sa.UniqueConstraint(
            "org_id",
            "project_id",
            "name",
            name=op.f("uq_webhooks_org_id_project_id_name"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "webhook_cursors",
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_webhook_cursors_webhook_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_webhook_cursors_project_id")),
        sa.PrimaryKeyConstraint("webhook_id", "project_id", name=op.f("pk_webhook_cursors")),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("replay", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.CheckConstraint("state IN ('dead', 'delivered', 'pending')", name=op.f("ck_deliveries_state_known")),
        sa.CheckConstraint(
            "(state = 'pending') = (finished_at IS NULL)", name=op.f("ck_deliveries_finished_at_when_ended")
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    op.create_index(
        "ix_deliveries_pending", "deliveries", ["webhook_id", "number"], postgresql_where=sa.text("state = 'pending'")
    )
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "number"])
    op.create_index("ix_deliveries_finished", "deliveries", ["finished_at"])


def downgrade() -> None:
    op.drop_table("deliveries")
    op.drop_table("webhook_cursors")
    op.drop_table("webhooks")
