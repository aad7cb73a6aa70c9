"""The last scrub of a slot, and of GPUs in slots that are gone, is found without reading all that ever were"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX ix_claims_slot_freed ON claims (slot_id, freed_at) WHERE state = 'freed'")
    op.execute("CREATE INDEX ix_slots_node_retired ON slots (node_id) WHERE state = 'retired'")


def downgrade() -> None:
    """The version before knows only claims of machines: a slot whose scrub has not ended waits for an operator there."""
    op.execute("DROP INDEX ix_slots_node_retired")
    op.execute("DROP INDEX ix_claims_slot_freed")
    op.execute(
        "UPDATE slots SET state = 'quarantined', reason = 'its scrub had not ended' WHERE state = 'approved'"
        " AND id IN (SELECT slot_id FROM claims WHERE allocation_id LIKE 'sc-%' AND state <> 'freed')"
    )
    op.execute("DELETE FROM claims WHERE allocation_id LIKE 'sc-%'")
