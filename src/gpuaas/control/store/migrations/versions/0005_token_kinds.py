"""How somebody came by a token, and from where"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    kind: sa.Column[str] = sa.Column("kind", sa.Text(), server_default=sa.text("'api'"), nullable=False)
    source: sa.Column[str] = sa.Column("source", sa.Text(), server_default=sa.text("''"), nullable=False)
    op.add_column("tokens", kind)
    op.add_column("tokens", source)
    op.execute("UPDATE tokens SET kind = 'password' WHERE name = 'login'")
    op.create_check_constraint(op.f("ck_tokens_kind_known"), "tokens", "kind IN ('api', 'oidc', 'password')")


def downgrade() -> None:
    op.drop_column("tokens", "source")
    op.drop_column("tokens", "kind")
