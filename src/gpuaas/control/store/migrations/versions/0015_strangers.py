"""Seats that machines hold of which a restored database knows nothing"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "strangers",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("seat", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_strangers_node_id")),
        sa.PrimaryKeyConstraint("node_id", "seat", name=op.f("pk_strangers")),
    )


def downgrade() -> None:
    op.drop_table("strangers")
