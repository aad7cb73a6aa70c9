"""Projects may let their machines talk to each other"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column: sa.Column[bool] = sa.Column("open_network", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    op.add_column("projects", column)


def downgrade() -> None:
    op.drop_column("projects", "open_network")
