"""What a launch writes: no foreign key that the statement itself proves, no index that another one covers"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

PROVEN = (
    ("allocations", "org_id", "orgs"),
    ("operations", "org_id", "orgs"),
    ("operations", "project_id", "projects"),
    ("events", "org_id", "orgs"),
    ("events", "project_id", "projects"),
    ("audit", "org_id", "orgs"),
    ("specs", "node_id", "nodes"),
)


def upgrade() -> None:
    for table, column, _ in PROVEN:
        op.drop_constraint(f"fk_{table}_{column}", table, type_="foreignkey")
    op.execute("DROP INDEX IF EXISTS ix_allocations_node_live")
    op.execute("DROP INDEX IF EXISTS ix_capacity_choice")


def downgrade() -> None:
    for table, column, target in PROVEN:
        op.create_foreign_key(f"fk_{table}_{column}", table, target, [column], ["id"])
    op.execute("CREATE INDEX ix_allocations_node_live ON allocations (node_id) WHERE reaped_at IS NULL")
    op.execute(
        "CREATE INDEX ix_capacity_choice ON capacity (gpu_model, pool, free_gpus, together, node_id)"
        " WHERE open AND free_slots > 0"
    )
