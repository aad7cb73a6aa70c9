"""Machines that give way, and when they were told"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("allocations", "queue"):
        op.add_column(table, sa.Column("preemptible", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.create_table(
        "preemptions",
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("wanted_by", sa.Text(), nullable=False),
        sa.Column("warned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_preemptions_allocation_id")),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_preemptions")),
    )
    op.create_index("ix_preemptions_wanted_by", "preemptions", ["wanted_by"])


def downgrade() -> None:
    op.drop_table("preemptions")
    for table in ("queue", "allocations"):
        op.drop_column(table, "preemptible")
