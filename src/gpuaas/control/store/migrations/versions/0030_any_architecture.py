"""A machine that waits may have chosen a runtime by name: where it gets its place decides the architecture"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column: sa.Column[bool] = sa.Column(
        "any_architecture", sa.Boolean(), server_default=sa.text("false"), nullable=False
    )
    op.add_column("allocation_runtimes", column)


def downgrade() -> None:
    op.drop_column("allocation_runtimes", "any_architecture")
