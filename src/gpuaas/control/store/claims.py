"""An allocation's hold on its slots. The partial unique index is what makes two winners impossible."""

from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx


def take(tx: Tx, wanted: list[tuple[str, str]]) -> bool:
    """Claim (slot, allocation) pairs, all or none. Sorted, so that two takers never wait in a circle."""
    rows = [
        {"id": tx.ids.new("cl"), "slot_id": slot, "allocation_id": allocation, "state": "held", "created_at": tx.now}
        for slot, allocation in sorted(wanted)
    ]
    attempt = tx.savepoint()
    for row in rows:
        statement = upsert(t.claims).values(**row).on_conflict_do_nothing().returning(t.claims.c.id)
        if tx.conn.execute(statement).first() is None:
            attempt.rollback()
            return False
    attempt.commit()
    return True


def slot_ids(tx: Tx, allocation_id: str) -> list[str]:
    statement = select(t.claims.c.slot_id).where(t.claims.c.allocation_id == allocation_id, t.claims.c.state != "freed")
    return [row.slot_id for row in tx.conn.execute(statement.order_by(t.claims.c.slot_id))]


def scrubbing(tx: Tx, allocation_id: str) -> None:
    """No longer used; free only when the node gives evidence."""
    tx.conn.execute(
        update(t.claims)
        .where(t.claims.c.allocation_id == allocation_id, t.claims.c.state == "held")
        .values(state="scrubbing")
    )


def free(tx: Tx, allocation_id: str, evidence: list[dict[str, Any]]) -> None:
    tx.conn.execute(
        update(t.claims)
        .where(t.claims.c.allocation_id == allocation_id, t.claims.c.state == "scrubbing")
        .values(state="freed", freed_at=tx.now, evidence=evidence)
    )
    tx.wake("placement")
