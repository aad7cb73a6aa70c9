"""Projects and organisations have quotas"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "quotas",
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("most", sa.BigInteger(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "kind IN ('allocations', 'gpu_hours', 'gpus', 'volumes')", name=op.f("ck_quotas_kind_known")
        ),
        sa.CheckConstraint("most >= 0", name=op.f("ck_quotas_not_negative")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_quotas_org_id")),
        sa.PrimaryKeyConstraint("owner_id", "kind", name=op.f("pk_quotas")),
    )
    for scope in ("org", "project"):
        op.create_index(
            f"ix_allocations_{scope}_held",
            "allocations",
            [f"{scope}_id"],
            postgresql_where=sa.text("node_id IS NOT NULL AND reaped_at IS NULL"),
        )


def downgrade() -> None:
    for scope in ("org", "project"):
        op.drop_index(f"ix_allocations_{scope}_held", "allocations")
    op.drop_table("quotas")
