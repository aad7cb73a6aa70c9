"""The ledger in full: what was sold to whom on which GPUs, corrections, price books, statements, budgets"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

APPEND_ONLY = ("corrections", "price_books", "statements")


def upgrade() -> None:
    op.add_column("usage", sa.Column("user_id", sa.Text(), nullable=True))
    op.create_foreign_key(op.f("fk_usage_user_id"), "usage", "users", ["user_id"], ["id"])
    op.add_column("usage", sa.Column("terms", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    gpus: sa.Column[list[str]] = sa.Column(
        "gpus", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False
    )
    op.add_column("usage", gpus)
    op.create_index("ix_usage_resource", "usage", ["resource_id", "started_at"])
    op.execute(
        "UPDATE usage u SET user_id = a.owner_id, gpus = ARRAY(SELECT gpu FROM claims c JOIN slots s"
        " ON s.id = c.slot_id, unnest(s.gpus) AS gpu WHERE c.allocation_id = a.id ORDER BY gpu)"
        " FROM allocations a WHERE a.id = u.resource_id"
    )
    op.create_table(
        "corrections",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("usage_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("ended_at > started_at", name=op.f("ck_corrections_forward")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_corrections_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_corrections_project_id")),
        sa.ForeignKeyConstraint(["usage_id"], ["usage.id"], name=op.f("fk_corrections_usage_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corrections")),
    )
    op.create_index("ix_corrections_project_created", "corrections", ["project_id", "created_at"])
    op.create_index("ix_corrections_usage_id", "corrections", ["usage_id"])
    op.create_table(
        "price_books",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("prices", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("valid_from >= created_at", name=op.f("ck_price_books_never_in_the_past")),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_price_books")),
    )
    op.create_table(
        "statements",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("amount_micros", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_statements_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_statements_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_statements")),
        sa.UniqueConstraint("project_id", "starts_at", name=op.f("uq_statements_project_id_starts_at")),
    )
    op.create_table(
        "budgets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("amount_micros", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("amount_micros > 0", name=op.f("ck_budgets_positive")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_budgets_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_budgets_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )
    of_project, of_org = sa.text("project_id IS NOT NULL"), sa.text("project_id IS NULL")
    op.create_index("uq_budgets_project", "budgets", ["project_id"], unique=True, postgresql_where=of_project)
    op.create_index("uq_budgets_org", "budgets", ["org_id"], unique=True, postgresql_where=of_org)
    op.create_table(
        "budget_alerts",
        sa.Column("budget_id", sa.Text(), nullable=False),
        sa.Column("month", sa.DateTime(timezone=True), nullable=False),
        sa.Column("amount_micros", sa.BigInteger(), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["budget_id"], ["budgets.id"], name=op.f("fk_budget_alerts_budget_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("budget_id", "month", "amount_micros", "percent", name=op.f("pk_budget_alerts")),
    )
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION '% is append-only: write a new entry instead', TG_TABLE_NAME"
        " USING ERRCODE = 'integrity_constraint_violation'; END $$"
    )
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
    # An open interval is closed once; nothing else about it changes.
    op.execute(
        "CREATE TRIGGER closed_for_good BEFORE UPDATE ON usage FOR EACH ROW"
        " WHEN (OLD.ended_at IS NOT NULL OR (OLD.started_at, OLD.resource_id, OLD.component, OLD.shape)"
        " IS DISTINCT FROM (NEW.started_at, NEW.resource_id, NEW.component, NEW.shape)"
        " OR OLD.terms IS DISTINCT FROM NEW.terms OR OLD.gpus IS DISTINCT FROM NEW.gpus)"
        " EXECUTE FUNCTION refuse_change()"
    )
    op.execute("CREATE TRIGGER kept_for_good BEFORE DELETE ON usage FOR EACH ROW EXECUTE FUNCTION refuse_change()")


def downgrade() -> None:
    op.execute("DROP TRIGGER kept_for_good ON usage")
    op.execute("DROP TRIGGER closed_for_good ON usage")
    op.drop_table("budget_alerts")
    op.drop_table("budgets")
    op.drop_table("statements")
    op.drop_table("price_books")
    op.drop_table("corrections")
    op.execute("DROP FUNCTION refuse_change()")
    op.drop_index("ix_usage_resource", "usage")
    op.drop_column("usage", "gpus")
    op.drop_column("usage", "terms")
    op.drop_column("usage", "user_id")
