"""How far the clocks of nodes are off"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("clock_skew_seconds", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("nodes", "clock_skew_seconds")
