"""Single sign-on: whom the provider knows, what orgs make of it, logins under way"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    managed: sa.Column[bool] = sa.Column("managed", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    op.add_column("memberships", managed)
    op.create_table(
        "oidc_identities",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_oidc_identities_user_id")),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("pk_oidc_identities")),
        sa.UniqueConstraint("user_id", "issuer", name=op.f("uq_oidc_identities_user_id_issuer")),
    )
    op.create_table(
        "org_oidc",
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("domains", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("groups", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_org_oidc_org_id")),
        sa.PrimaryKeyConstraint("org_id", name=op.f("pk_org_oidc")),
    )
    op.create_table(
        "oidc_logins",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("state_hash", sa.LargeBinary(), nullable=False),
        sa.Column("cookie_hash", sa.LargeBinary(), nullable=False),
        sa.Column("redirect", sa.Text(), nullable=True),
        sa.Column("client_state", sa.Text(), nullable=False),
        sa.Column("challenge", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("code_hash", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("(user_id IS NULL) = (code_hash IS NULL)", name=op.f("ck_oidc_logins_a_code_is_somebodys")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_oidc_logins_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oidc_logins")),
        sa.UniqueConstraint("state_hash", name=op.f("uq_oidc_logins_state_hash")),
        sa.UniqueConstraint("code_hash", name=op.f("uq_oidc_logins_code_hash")),
    )
    op.create_index("ix_oidc_logins_expires_at", "oidc_logins", ["expires_at"], unique=False)


def downgrade() -> None:
    op.drop_table("oidc_logins")
    op.drop_table("org_oidc")
    op.drop_table("oidc_identities")
    op.drop_column("memberships", "managed")
