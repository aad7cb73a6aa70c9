"""Extensions from which the idle rule of a project begins anew"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leases", sa.Column("excused_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("leases", "excused_at")
