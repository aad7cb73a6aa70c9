"""Capacity that is booked ahead"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("org_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("offer_id", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("launch_name", sa.Text(), nullable=True),
        sa.Column("key_ids", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("group_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('booked', 'cancelled', 'expired', 'used')", name=op.f("ck_reservations_state_known")
        ),
        sa.CheckConstraint("count > 0 AND starts_at < ends_at", name=op.f("ck_reservations_window")),
        sa.CheckConstraint("(state = 'booked') = (ended_at IS NULL)", name=op.f("ck_reservations_ended_at_when_ended")),
        sa.CheckConstraint(
            "(state = 'used') = (group_id IS NOT NULL)", name=op.f("ck_reservations_became_something_when_used")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name=op.f("fk_reservations_org_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_reservations_project_id")),
        sa.ForeignKeyConstraint(["offer_id"], ["offers.id"], name=op.f("fk_reservations_offer_id")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_reservations_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    booked = sa.text("state = 'booked'")
    op.create_index(
        "uq_reservations_name_booked", "reservations", ["project_id", "name"], unique=True, postgresql_where=booked
    )
    op.create_index("ix_reservations_project_id_starts_at", "reservations", ["project_id", "starts_at"])
    op.create_index("ix_reservations_booked", "reservations", ["starts_at"], postgresql_where=booked)
    op.create_table(
        "bookings",
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("slot_id", sa.Text(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=False),
        sa.Column("seat", sa.Integer(), nullable=False),
        sa.Column("realisation", sa.Text(), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("free_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["reservation_id"], ["reservations.id"], name=op.f("fk_bookings_reservation_id")),
        sa.ForeignKeyConstraint(["slot_id"], ["slots.id"], name=op.f("fk_bookings_slot_id")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_bookings_node_id")),
        sa.PrimaryKeyConstraint("reservation_id", "slot_id", name=op.f("pk_bookings")),
    )
    op.create_index("ix_bookings_slot_id", "bookings", ["slot_id"])
    op.create_index("ix_bookings_node_id", "bookings", ["node_id"])


def downgrade() -> None:
    op.drop_table("bookings")
    op.drop_table("reservations")
