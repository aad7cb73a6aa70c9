"""A runtime that takes the place of another bundle"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allocation_runtimes", sa.Column("replaces", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("allocation_runtimes", "replaces")
