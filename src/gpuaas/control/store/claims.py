"""An allocation's hold on its slots. Made under the node's row lock; the partial unique index is the last guard."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update

from gpuaas.control.store import capacity
from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale

_TAKE = """
    INSERT INTO claims (id, slot_id, allocation_id, state, created_at)
    SELECT id, slot_id, %(allocation_id)s, 'held', %(now)s
    FROM unnest(%(ids)s::text[], %(slot_ids)s::text[]) AS wanted (id, slot_id)
"""

_HOLDERS = "SELECT slot_id, allocation_id FROM claims WHERE allocation_id = ANY(%(ids)s::text[]) AND state = 'held'"


def take(tx: Tx, allocation_id: str, slot_ids: Sequence[str]) -> None:
    """All of them: the caller has locked the node and seen that they are free."""
    values = {"ids": [tx.ids.new("cl") for _ in slot_ids], "slot_ids": list(slot_ids)}
    tx.means("uq_claims_slot_live", Stale(f"a slot of {slot_ids} was taken without its node's lock"))
    tx.later(_TAKE, {**values, "allocation_id": allocation_id, "now": tx.now})


def slot_ids(tx: Tx, allocation_id: str) -> list[str]:
    statement = select(t.claims.c.slot_id).where(t.claims.c.allocation_id == allocation_id, t.claims.c.state != "freed")
    return [row.slot_id for row in tx.conn.execute(statement.order_by(t.claims.c.slot_id))]


def holders(tx: Tx, allocation_ids: Sequence[str]) -> dict[str, str]:
    """Which of these holds which slot, by slot."""
    return dict(tx.run(_HOLDERS, {"ids": list(allocation_ids)}).fetchall())


def gpus(tx: Tx, allocation_id: str) -> list[str]:
    """Of the slots that it has not given back yet."""
    statement = (
        select(t.slots.c.gpus)
        .join(t.claims, t.claims.c.slot_id == t.slots.c.id)
        .where(t.claims.c.allocation_id == allocation_id, t.claims.c.state != "freed")
    )
    return sorted(gpu for found in tx.conn.execute(statement).scalars() for gpu in found)


def scrubbing(tx: Tx, allocation_id: str) -> None:
    """No longer used; free only when the node gives evidence."""
    tx.conn.execute(
        update(t.claims)
        .where(t.claims.c.allocation_id == allocation_id, t.claims.c.state == "held")
        .values(state="scrubbing")
    )


def free(tx: Tx, allocation_id: str, node_id: str, evidence: list[dict[str, Any]]) -> None:
    tx.conn.execute(
        update(t.claims)
        .where(t.claims.c.allocation_id == allocation_id, t.claims.c.state == "scrubbing")
        .values(state="freed", freed_at=tx.now, evidence=evidence)
    )
    capacity.changed(tx, node_id)
    tx.wake("placement")
