"""Operators at tenants' objects: why, and until when"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "break_glass",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.CheckConstraint("(ended_at IS NULL) = (ended_by IS NULL)", name=op.f("ck_break_glass_ended_by_somebody")),
        sa.CheckConstraint("expires_at <= created_at + interval '8 hours'", name=op.f("ck_break_glass_not_for_long")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_break_glass_org_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_break_glass_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_break_glass")),
    )
    op.create_index(
        "uq_break_glass_open",
        "break_glass",
        ["user_id", "org_id"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index("ix_break_glass_org", "break_glass", ["org_id", "created_at", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("break_glass")
