"""A role for builders: they publish runtimes, and nothing else"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

NAME = "ck_users_platform_role_known"


def upgrade() -> None:
    op.drop_constraint(op.f(NAME), "users", type_="check")
    known = "platform_role IN ('platform_admin', 'platform_builder', 'platform_ops')"
    op.create_check_constraint(op.f(NAME), "users", known)


def downgrade() -> None:
    op.execute("UPDATE users SET platform_role = NULL WHERE platform_role = 'platform_builder'")
    op.drop_constraint(op.f(NAME), "users", type_="check")
    op.create_check_constraint(op.f(NAME), "users", "platform_role IN ('platform_admin', 'platform_ops')")
