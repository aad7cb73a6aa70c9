"""Rows that history points at stay, and say so themselves: a launch does not look for each of them again

A foreign key costs a launch a query, a lock and a write to the row that it points at, which everybody shares who
launches the same offer. What it promised is promised by the other side now: the rows cannot be deleted.
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

STAY = ("orgs", "projects", "users", "offers", "nodes", "slots", "allocations")
PROMISED = (
    ("allocations", "project_id", "projects"),
    ("allocations", "offer_id", "offers"),
    ("allocations", "owner_id", "users"),
    ("allocations", "node_id", "nodes"),
    ("claims", "slot_id", "slots"),
    ("claims", "allocation_id", "allocations"),
    ("operations", "allocation_id", "allocations"),
)
MODE = ("operating_mode", "control_plane_scope", "tenant_boundary_mode")
MODES = (
    ("tenant_dedicated", "project", "tenant_isolated"),
    ("tenant_dedicated", "tenant", "tenant_isolated"),
    ("platform_managed", "platform", "shared_service"),
)
SAYING = ("operations", "events", "audit", "usage")


def upgrade() -> None:
    op.execute(
        """
        CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'rows of % stay: history points at them', TG_TABLE_NAME USING ERRCODE = '23001';
        END $$
        """
    )
    for table in STAY:
        op.execute(f"CREATE TRIGGER stays BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION stays()")
    for table, column, _ in PROMISED:
        op.drop_constraint(f"fk_{table}_{column}", table, type_="foreignkey")
    names = ", ".join(MODE)
    op.execute(f"CREATE TABLE operating_modes ({', '.join(f'{name} text NOT NULL' for name in MODE)},"
               f" CONSTRAINT pk_operating_modes PRIMARY KEY ({names}))")  # fmt: skip
    op.execute(f"INSERT INTO operating_modes VALUES {', '.join(map(str, MODES))}")
    for table in SAYING:
        op.drop_constraint(op.f(f"ck_{table}_operating_mode_combination"), table, type_="check")
        op.create_foreign_key(f"fk_{table}_operating_mode", table, "operating_modes", list(MODE), list(MODE))


def downgrade() -> None:
    for table in SAYING:
        op.drop_constraint(f"fk_{table}_operating_mode", table, type_="foreignkey")
        known = f"operating_mode IS NULL OR ({', '.join(MODE)}) IN ({', '.join(map(str, MODES))})"
        op.create_check_constraint(op.f(f"ck_{table}_operating_mode_combination"), table, known)
    op.execute("DROP TABLE operating_modes")
    for table, column, target in PROMISED:
        op.create_foreign_key(f"fk_{table}_{column}", table, target, [column], ["id"])
    for table in STAY:
        op.execute(f"DROP TRIGGER stays ON {table}")
    op.execute("DROP FUNCTION stays()")
