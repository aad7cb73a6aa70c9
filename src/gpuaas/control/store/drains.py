"""Drains of nodes and slots. Set and lifted under the node's row lock, so that no launch slips in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

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
    warned_at: datetime | None = None  # when who is there was last told


_SET = f"""
    INSERT INTO drains ({names(Drain)}) VALUES (%(target_id)s, %(node_id)s, %(slot_id)s, %(reason)s, %(created_by)s,
        %(created_at)s, %(deadline)s, %(warned_at)s)
    ON CONFLICT (target_id) DO UPDATE
    SET reason = excluded.reason, deadline = excluded.deadline, warned_at = excluded.warned_at
"""
_ON = f"SELECT {names(Drain)} FROM drains WHERE node_id = %(node_id)s ORDER BY target_id"
_DUE = "deadline <= %(now)s"
_OVER = f"SELECT {names(Drain)} FROM drains WHERE {_DUE} ORDER BY target_id"
_STILL_OVER = f"SELECT FROM drains WHERE target_id = %(id)s AND {_DUE}"
# Told by then, and not since.
_REMIND = f"""
    SELECT {names(Drain)} FROM drains WHERE deadline > %(now)s AND EXISTS (
        SELECT FROM unnest(%(before)s::interval[]) AS before
        WHERE deadline - before <= %(now)s AND coalesce(warned_at, created_at) < deadline - before
    ) {{which}} ORDER BY target_id
"""
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


def to_remind(tx: Tx, before: Sequence[timedelta], target_id: str | None = None) -> list[Drain]:
    """Those whose users are to be told again, so long before the deadline; or this one, if it is still one of them."""
    which = "" if target_id is None else "AND target_id = %(id)s"
    values = {"now": tx.now, "before": list(before), "id": target_id}
    return [made(Drain, row) for row in tx.run(_REMIND.format(which=which), values)]


def warned(tx: Tx, target_id: str) -> None:
    tx.run("UPDATE drains SET warned_at = %(now)s WHERE target_id = %(id)s", {"now": tx.now, "id": target_id})


def still_over(tx: Tx, drain: Drain) -> bool:
    """Whether it is so now, and until this is committed: somebody may have lifted it, or set a later deadline."""
    capacity.lock(tx, [drain.node_id])
    return tx.run(_STILL_OVER, {"id": drain.target_id, "now": tx.now}).fetchone() is not None


def allocation_ids(tx: Tx, drain: Drain) -> list[str]:
    """Who is on what is drained."""
    return [row[0] for row in tx.run(_HELD, {"node_id": drain.node_id, "slot_id": drain.slot_id})]
