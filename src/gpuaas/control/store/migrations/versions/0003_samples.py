"""Samples: what running machines use"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_of_minute", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("cpu_seconds", sa.Double(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("memory_limit_bytes", sa.BigInteger(), nullable=False),
        sa.Column("processes", sa.BigInteger(), nullable=False),
        sa.Column("sessions", sa.BigInteger(), nullable=False),
        sa.Column("oom_kills", sa.BigInteger(), nullable=False),
        sa.Column("disk_read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("disk_written_bytes", sa.BigInteger(), nullable=False),
        sa.Column("disk_used_bytes", sa.BigInteger(), nullable=True),
        sa.Column("disk_limit_bytes", sa.BigInteger(), nullable=True),
        sa.Column("network_received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("network_sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("gpus", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_samples_allocation_id")),
        sa.PrimaryKeyConstraint("allocation_id", "at", name=op.f("pk_samples")),
    )
    op.create_index("ix_samples_kept", "samples", ["at"], postgresql_where=sa.text("first_of_minute"))
    op.create_index("ix_samples_thinned", "samples", ["at"], postgresql_where=sa.text("NOT first_of_minute"))


def downgrade() -> None:
    op.drop_table("samples")
