"""Machines that were told to give way. Changed only under the lock of whoever they give way to."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx


@dataclass(frozen=True)
class Preemption:
    allocation_id: str
    wanted_by: str  # a group in the line, or a reservation
    warned_at: datetime
    due_at: datetime


_SET = """
    INSERT INTO preemptions (allocation_id, wanted_by, warned_at, due_at)
    VALUES (%(id)s, %(wanted_by)s, %(now)s, %(due_at)s) ON CONFLICT DO NOTHING
"""
_OF = f"SELECT {names(Preemption)} FROM preemptions WHERE wanted_by = %(id)s ORDER BY allocation_id"
_ONE = f"SELECT {names(Preemption)} FROM preemptions WHERE allocation_id = %(id)s"
_DUE = "SELECT allocation_id FROM preemptions WHERE due_at <= %(now)s ORDER BY due_at, allocation_id"


def set_(tx: Tx, allocation_id: str, wanted_by: str, due_at: datetime) -> bool:
    """False: it was told to give way to somebody else already."""
    values = {"id": allocation_id, "wanted_by": wanted_by, "now": tx.now, "due_at": due_at}
    return tx.run(_SET, values).rowcount == 1


def of(tx: Tx, wanted_by: str) -> list[Preemption]:
    return [made(Preemption, row) for row in tx.run(_OF, {"id": wanted_by})]


def one(tx: Tx, allocation_id: str) -> Preemption | None:
    row = tx.run(_ONE, {"id": allocation_id}).fetchone()
    return None if row is None else made(Preemption, row)


def remove(tx: Tx, allocation_ids: Sequence[str]) -> None:
    tx.run("DELETE FROM preemptions WHERE allocation_id = ANY(%(ids)s::text[])", {"ids": list(allocation_ids)})


def due(tx: Tx) -> list[str]:
    return [row[0] for row in tx.run(_DUE, {"now": tx.now})]
