"""Drains of nodes and slots. Set and lifted under the node's row lock, so that no launch slips in between."""

from dataclasses import dataclass
from datetime import datetime

from gpuaas.control.store import capacity
from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx


@dataclass(frozen=True)
class Drain:
    target_id: str
    node_id: str
    slot_id: str | None
    reason: str
    created_by: str
    created_at: datetime
    deadline: datetime | None


_SET = f"""
    INSERT INTO drains ({names(Drain)}) VALUES (%(target_id)s, %(node_id)s, %(slot_id)s, %(reason)s, %(created_by)s,
        %(created_at)s, %(deadline)s)
    ON CONFLICT (target_id) DO UPDATE SET reason = excluded.reason, deadline = excluded.deadline
"""
_ON = f"SELECT {names(Drain)} FROM drains WHERE node_id = %(node_id)s ORDER BY target_id"
_DUE = "deadline <= %(now)s"
_OVER = f"SELECT {names(Drain)} FROM drains WHERE {_DUE} ORDER BY target_id"
_STILL_OVER = f"SELECT FROM drains WHERE target_id = %(id)s AND {_DUE}"
# Of a slot: whoever holds it. Of a node: whoever is there.
_HELD = """
    SELECT a.id FROM allocations a
    WHERE a.node_id = %(node_id)s AND a.reaped_at IS NULL AND (%(slot_id)s::text IS NULL OR EXISTS (
        SELECT FROM claims c WHERE c.allocation_id = a.id AND c.slot_id = %(slot_id)s AND c.state = 'held'
    )) ORDER BY a.id
"""


def set_(tx: Tx, drain: Drain) -> None:
    capacity.lock(tx, [drain.node_id])
    tx.run(_SET, drain.__dict__)
    capacity.changed(tx, drain.node_id)


def lift(tx: Tx, node_id: str, target_id: str) -> bool:
    """False when it was not drained."""
    capacity.lock(tx, [node_id])
    gone = tx.run("DELETE FROM drains WHERE target_id = %(id)s", {"id": target_id}).rowcount == 1
    capacity.changed(tx, node_id)
    tx.wake("placement")
    return gone


def on_node(tx: Tx, node_id: str) -> list[Drain]:
    return [made(Drain, row) for row in tx.run(_ON, {"node_id": node_id})]


def over(tx: Tx) -> list[Drain]:
    """Those whose deadline has passed."""
    return [made(Drain, row) for row in tx.run(_OVER, {"now": tx.now})]


def still_over(tx: Tx, drain: Drain) -> bool:
    """Whether it is so now, and until this is committed: somebody may have lifted it, or set a later deadline."""
    capacity.lock(tx, [drain.node_id])
    return tx.run(_STILL_OVER, {"id": drain.target_id, "now": tx.now}).fetchone() is not None


def allocation_ids(tx: Tx, drain: Drain) -> list[str]:
    """Who is on what is drained."""
    return [row[0] for row in tx.run(_HELD, {"node_id": drain.node_id, "slot_id": drain.slot_id})]
