"""Nodes and slots can be drained"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drains",
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("slot_id", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_drains_node_id")),
        sa.ForeignKeyConstraint(["slot_id"], ["slots.id"], name=op.f("fk_drains_slot_id")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_drains_created_by")),
        sa.PrimaryKeyConstraint("target_id", name=op.f("pk_drains")),
    )
    op.create_index("ix_drains_node_id", "drains", ["node_id"])
    op.create_index("ix_drains_deadline", "drains", ["deadline"], postgresql_where=sa.text("deadline IS NOT NULL"))


def downgrade() -> None:
    op.drop_table("drains")
