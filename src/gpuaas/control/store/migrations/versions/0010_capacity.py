"""Free slots are counted by node and GPU model"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COUNT = """
INSERT INTO capacity (node_id, gpu_model, pool, open, slots, free_slots, free_gpus, together)
SELECT node_id, gpu_model, max(pool), bool_and(open), max(slots), sum(free_slots), sum(free_gpus), max(free_gpus)
FROM (
    SELECT s.node_id, s.gpu_model, s.numa, coalesce(max(n.org_id), '') AS pool,
        bool_and(n.state = 'ready' AND coalesce((n.inventory->>'ready')::boolean, false)) AS open,
        (SELECT count(*) FROM slots o WHERE o.node_id = s.node_id AND o.state <> 'retired') AS slots,
        count(*) FILTER (WHERE s.state = 'approved' AND c.id IS NULL) AS free_slots,
        coalesce(sum(cardinality(s.gpus)) FILTER (WHERE s.state = 'approved' AND c.id IS NULL), 0) AS free_gpus
    FROM slots s JOIN nodes n ON n.id = s.node_id
    LEFT JOIN claims c ON c.slot_id = s.id AND c.state <> 'freed'
    WHERE s.state <> 'retired' AND n.state <> 'removed'
    GROUP BY s.node_id, s.gpu_model, s.numa
) grouped GROUP BY node_id, gpu_model
"""


def upgrade() -> None:
    op.create_table(
        "capacity",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("open", sa.Boolean(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("free_slots", sa.Integer(), nullable=False),
        sa.Column("free_gpus", sa.Integer(), nullable=False),
        sa.Column("together", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "free_slots BETWEEN 0 AND slots AND together BETWEEN 0 AND free_gpus", name=op.f("ck_capacity_counts")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_capacity_node_id")),
        sa.PrimaryKeyConstraint("node_id", "gpu_model", name=op.f("pk_capacity")),
    )
    op.create_index(
        "ix_capacity_choice",
        "capacity",
        ["gpu_model", "pool", "free_gpus", "together", "node_id"],
        postgresql_where=sa.text("open AND free_slots > 0"),
    )
    op.execute(COUNT)


def downgrade() -> None:
    op.drop_table("capacity")
