"""Leases: how long machines may stay, and the state of one that was stopped"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

BEFORE = ("active", "failed", "provisioning", "queued", "released", "releasing", "restarting", "unreachable")
STAGES = ("hour", "minutes", "stopped")


def upgrade() -> None:
    _states(sorted((*BEFORE, "stopped")))
    op.create_table(
        "leases",
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("max_seconds", sa.Integer(), nullable=True),
        sa.Column("idle_seconds", sa.Integer(), nullable=True),
        *(
            sa.Column(name, sa.DateTime(timezone=True), nullable=True)
            for name in ("ends_at", "extended_at", "busy_at", "looked_at")
        ),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("stage_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(stage IS NULL) = (stage_at IS NULL)", name=op.f("ck_leases_stage_since_when")),
        sa.CheckConstraint(_in("stage", STAGES), name=op.f("ck_leases_stage_known")),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocations.id"], name=op.f("fk_leases_allocation_id")),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_leases")),
    )
    op.create_table(
        "lease_policies",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("idle_seconds", sa.Integer(), nullable=True),
        sa.Column("idle_gpu_percent", sa.Integer(), nullable=False),
        sa.Column("max_seconds", sa.Integer(), nullable=True),
        sa.CheckConstraint("idle_gpu_percent BETWEEN 1 AND 100", name=op.f("ck_lease_policies_percent")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_lease_policies_project_id")),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_lease_policies")),
    )


def downgrade() -> None:
    op.drop_table("lease_policies")
    op.drop_table("leases")
    _states(BEFORE)


def _states(states: tuple[str, ...] | list[str]) -> None:
    op.drop_constraint(op.f("ck_allocations_state_known"), "allocations")
    op.create_check_constraint(op.f("ck_allocations_state_known"), "allocations", _in("state", states))


def _in(column: str, values: tuple[str, ...] | list[str]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"
