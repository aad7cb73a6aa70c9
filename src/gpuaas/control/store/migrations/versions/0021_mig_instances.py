"""A GPU is whole or cut into MIG instances, never both"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

# Which GPU the instances are of that are there already, their node says when it connects next.
KNOWN = """
INSERT INTO cards (gpu, cut) SELECT gpu, false FROM slot_gpus WHERE gpu NOT LIKE 'MIG-%'
"""
WHOLE = "UPDATE slot_gpus SET card = gpu, cut = false WHERE gpu NOT LIKE 'MIG-%'"


def upgrade() -> None:
    op.create_table(
        "cards",
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("cut", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("gpu", name=op.f("pk_cards")),
        sa.UniqueConstraint("gpu", "cut", name=op.f("uq_cards_gpu_cut")),
    )
    op.add_column("slots", sa.Column("card", sa.Text(), nullable=True))
    op.add_column("slot_gpus", sa.Column("card", sa.Text(), nullable=True))
    op.add_column("slot_gpus", sa.Column("cut", sa.Boolean(), nullable=True))
    op.create_foreign_key(op.f("fk_slot_gpus_card_cut"), "slot_gpus", "cards", ["card", "cut"], ["gpu", "cut"])
    op.create_index("ix_slot_gpus_card", "slot_gpus", ["card"])
    op.execute(KNOWN)
    op.execute(WHOLE)


def downgrade() -> None:
    op.drop_constraint(op.f("fk_slot_gpus_card_cut"), "slot_gpus", type_="foreignkey")
    op.drop_index("ix_slot_gpus_card", "slot_gpus")
    op.drop_column("slot_gpus", "cut")
    op.drop_column("slot_gpus", "card")
    op.drop_column("slots", "card")
    op.drop_table("cards")
