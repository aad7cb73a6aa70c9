"""Launches that wait have a place in a line"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

WAITING = """
INSERT INTO queue (group_id, org_id, project_id, offer_id, gpu_model, gpus, priority, reasons, created_at)
SELECT a.group_id, a.org_id, a.project_id, a.offer_id, o.gpu_model, sum(o.gpu_count), 5, '[]', min(a.created_at)
FROM allocations a JOIN offers o ON o.id = a.offer_id WHERE a.state = 'queued'
GROUP BY a.group_id, a.org_id, a.project_id, a.offer_id, o.gpu_model
"""


def upgrade() -> None:
    op.create_table(
        "queue",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("offer_id", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("reasons", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("priority BETWEEN 0 AND 9", name=op.f("ck_queue_priority_known")),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_queue_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_queue_project_id")),
        sa.ForeignKeyConstraint(["offer_id"], ["offers.id"], name=op.f("fk_queue_offer_id")),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_queue")),
    )
    op.create_index("ix_queue_expires_at", "queue", ["expires_at"], postgresql_where=sa.text("expires_at IS NOT NULL"))
    op.create_table(
        "holds",
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_holds_node_id")),
        sa.ForeignKeyConstraint(["group_id"], ["queue.group_id"], name=op.f("fk_holds_group_id")),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_holds")),
    )
    op.create_index(op.f("ix_holds_group_id"), "holds", ["group_id"])
    op.execute(WAITING)


def downgrade() -> None:
    op.drop_table("holds")
    op.drop_table("queue")
