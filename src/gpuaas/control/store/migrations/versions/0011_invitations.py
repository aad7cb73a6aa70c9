"""Invitations into orgs and projects"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    proven: sa.Column[bool] = sa.Column("email_proven", sa.Boolean(), server_default=sa.text("true"), nullable=False)
    op.add_column("users", proven)
    op.create_table(
        "invitations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("accepted_by", sa.Text(), nullable=True),
        sa.CheckConstraint("email = lower(email)", name=op.f("ck_invitations_email_lower")),
        sa.CheckConstraint(
            "CASE WHEN project_id IS NULL THEN role IN ('tenant_member', 'tenant_admin') "
            "ELSE role IN ('viewer', 'editor', 'admin') END",
            name=op.f("ck_invitations_role_fits"),
        ),
        sa.CheckConstraint("accepted_by IS NULL OR ended_at IS NOT NULL", name=op.f("ck_invitations_accepted_once")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_invitations_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_invitations_project_id")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_invitations_created_by")),
        sa.ForeignKeyConstraint(["accepted_by"], ["users.id"], name=op.f("fk_invitations_accepted_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("hash", name=op.f("uq_invitations_hash")),
    )
    op.create_index(
        "ix_invitations_open",
        "invitations",
        ["org_id", "project_id"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("invitations")
    op.drop_column("users", "email_proven")
