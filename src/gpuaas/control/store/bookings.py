"""The slots that are kept for reservations. Written under the locks of their nodes, which the caller has."""

from collections.abc import Sequence
from datetime import datetime

from gpuaas.control.store import capacity
from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx
from gpuaas.model.placement import Kept
from gpuaas.model.reservation import Booking, Stay

_OF = f"SELECT {names(Booking)} FROM bookings WHERE reservation_id = %(id)s ORDER BY seat, slot_id"
_INSERT = f"""
    INSERT INTO bookings ({names(Booking)}) VALUES (%(reservation_id)s, %(slot_id)s, %(node_id)s, %(seat)s,
        %(realisation)s, %(starts_at)s, %(free_at)s)
"""
_REMOVE = """
    DELETE FROM bookings WHERE reservation_id = %(id)s AND seat = ANY(%(seats)s::integer[]) RETURNING node_id
"""
_KEPT = """
    SELECT slot_id, reservation_id, starts_at, free_at FROM bookings WHERE slot_id = ANY(%(ids)s::text[])
    ORDER BY starts_at, reservation_id
"""
_NEXT = """
    SELECT min(b.starts_at) FROM bookings b JOIN claims c ON c.slot_id = b.slot_id AND c.state <> 'freed'
    WHERE c.allocation_id = %(id)s
"""
# Whoever has a slot, with all that says when they will be gone.
_STAYS = """
    SELECT s.id, s.node_id, a.id, cardinality(s.gpus), a.state, c.state, a.preemptible, a.active_at, p.wanted_by,
        p.due_at, l.max_seconds, l.ends_at, l.stage, l.stage_at
    FROM claims c JOIN slots s ON s.id = c.slot_id JOIN allocations a ON a.id = c.allocation_id
        LEFT JOIN preemptions p ON p.allocation_id = a.id LEFT JOIN leases l ON l.allocation_id = a.id
    WHERE c.state <> 'freed' {which} ORDER BY s.id
"""


def of(tx: Tx, reservation_id: str) -> list[Booking]:
    return [made(Booking, row) for row in tx.run(_OF, {"id": reservation_id})]


def insert(tx: Tx, booking: Booking) -> None:
    tx.run(_INSERT, booking.__dict__)
    capacity.changed(tx, booking.node_id)


def remove(tx: Tx, reservation_id: str, seats: Sequence[int]) -> None:
    """Of these machines."""
    for row in tx.run(_REMOVE, {"id": reservation_id, "seats": list(seats)}).fetchall():
        capacity.changed(tx, row[0])
    tx.wake("placement")


def kept(tx: Tx, slot_ids: Sequence[str]) -> dict[str, tuple[Kept, ...]]:
    """By slot, the next one first."""
    found: dict[str, tuple[Kept, ...]] = {}
    for slot_id, *rest in tx.run(_KEPT, {"ids": list(slot_ids)}):
        found[slot_id] = (*found.get(slot_id, ()), Kept(*rest))
    return found


def next_on(tx: Tx, allocation_id: str) -> datetime | None:
    """When the next window begins on a slot of this machine."""
    row = tx.run(_NEXT, {"id": allocation_id}).fetchone()
    return row[0] if row else None


def stays(tx: Tx, node_ids: Sequence[str] | None = None) -> list[Stay]:
    if node_ids is None:
        return [made(Stay, row) for row in tx.run(_STAYS.format(which=""))]
    found = tx.run(_STAYS.format(which="AND s.node_id = ANY(%(ids)s::text[])"), {"ids": list(node_ids)})
    return [made(Stay, row) for row in found]
