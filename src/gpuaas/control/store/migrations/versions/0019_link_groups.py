"""Slots know which GPUs are linked directly"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("slots", sa.Column("link_group", sa.Integer(), nullable=True))
    op.add_column("capacity", sa.Column("linked", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.create_index(
        "ix_capacity_packing",
        "capacity",
        ["gpu_model", "pool", "free_gpus", "linked", "together", "node_id"],
        postgresql_where=sa.text("open AND free_slots > 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_capacity_packing", "capacity")
    op.drop_column("capacity", "linked")
    op.drop_column("slots", "link_group")
