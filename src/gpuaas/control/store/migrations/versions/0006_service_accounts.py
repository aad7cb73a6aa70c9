"""Service accounts: users that belong to a project and never log in"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    kind: sa.Column[str] = sa.Column("kind", sa.Text(), server_default=sa.text("'person'"), nullable=False)
    project: sa.Column[str] = sa.Column("project_id", sa.Text(), nullable=True)
    op.add_column("users", kind)
    op.add_column("users", project)
    op.create_foreign_key(op.f("fk_users_project_id"), "users", "projects", ["project_id"], ["id"])
    op.create_index("ix_users_project_id", "users", ["project_id"], postgresql_where=sa.text("project_id IS NOT NULL"))
    op.create_check_constraint(op.f("ck_users_kind_known"), "users", "kind IN ('person', 'service')")
    op.create_check_constraint(
        op.f("ck_users_service_in_a_project"), "users", "(kind = 'service') = (project_id IS NOT NULL)"
    )
    op.create_check_constraint(
        op.f("ck_users_service_never_logs_in"),
        "users",
        "kind = 'person' OR (password_hash IS NULL AND platform_role IS NULL)",
    )


def downgrade() -> None:
    op.drop_column("users", "project_id")
    op.drop_column("users", "kind")
