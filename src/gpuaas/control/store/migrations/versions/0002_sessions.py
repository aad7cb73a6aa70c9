"""Sessions: who was logged in on which machine; machines by owner"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_allocations_owner_live",
        "allocations",
        ["owner_id"],
        unique=False,
        postgresql_where=sa.text("state <> 'released'"),
    )
    op.create_table(
        "sessions",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("fingerprint", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("source", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("heard_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("close_reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(closed_at IS NULL) = (close_reason IS NULL)", name=op.f("ck_sessions_closed_for_a_reason")
        ),
        sa.CheckConstraint("opened_at IS NOT NULL OR closed_at IS NOT NULL", name=op.f("ck_sessions_opened_or_closed")),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_sessions_allocation_id")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_sessions_node_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_sessions_user_id")),
        sa.PrimaryKeyConstraint("node_id", "allocation_id", "session", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_allocation", "sessions", ["allocation_id", "heard_at", "session"], unique=False)


def downgrade() -> None:
    op.drop_table("sessions")
    op.drop_index("ix_allocations_owner_live", "allocations")
