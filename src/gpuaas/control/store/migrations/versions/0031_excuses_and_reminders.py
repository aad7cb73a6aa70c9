"""Extensions from which the idle rule of a project begins anew; when who is on a drained node was last told"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leases", sa.Column("excused_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("drains", sa.Column("warned_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("drains", "warned_at")
    op.drop_column("leases", "excused_at")
