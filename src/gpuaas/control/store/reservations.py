"""Reservations. `end` is the only writer of their state; changed under their own row lock."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuaas.control.store.rows import made, names, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.kit.ids import is_id
from gpuaas.model.lifecycle import RESERVATION
from gpuaas.model.reservation import Reservation

_SELECT = f"SELECT {names(Reservation)} FROM reservations"
_INSERT = f"""
    INSERT INTO reservations (id, org_id, project_id, name, offer_id, count, owner_id, state, starts_at, ends_at,
        launch_name, key_ids, created_at)
    VALUES (%(id)s, %(org_id)s, %(project_id)s, %(name)s, %(offer_id)s, %(count)s, %(owner_id)s, 'booked',
        %(starts_at)s, %(ends_at)s, %(launch_name)s, %(key_ids)s, %(now)s)
    RETURNING {names(Reservation)}
"""


def insert(tx: Tx, **values: Any) -> Reservation:
    with unique():
        row = tx.run(_INSERT, {"id": tx.ids.new("rs"), "now": tx.now, **values}).fetchone()
    assert row is not None
    return made(Reservation, row)


def find(tx: Tx, name: str, project_ids: Sequence[str]) -> list[Reservation]:
    """By id, or by name among those that are booked."""
    named = "id = %(name)s" if is_id(name, "rs") else "name = %(name)s AND state = 'booked'"
    values = {"name": name, "projects": list(project_ids)}
    found = tx.run(f"{_SELECT} WHERE project_id = ANY(%(projects)s) AND {named} ORDER BY id", values)
    return [made(Reservation, row) for row in found]


def by_id(tx: Tx, id: str, *, lock: bool = False) -> Reservation | None:
    row = tx.run(f"{_SELECT} WHERE id = %(id)s {'FOR NO KEY UPDATE' if lock else ''}", {"id": id}).fetchone()
    return None if row is None else made(Reservation, row)


def page(
    tx: Tx, project_ids: Sequence[str], *, booked: bool, after: tuple[datetime, str] | None, limit: int
) -> list[Reservation]:
    at, id = after or (None, None)
    statement = f"""{_SELECT} WHERE project_id = ANY(%(projects)s) {"AND state = 'booked'" if booked else ""}
        {"AND (starts_at, id) > (%(at)s, %(id)s)" if after else ""} ORDER BY starts_at, id LIMIT %(limit)s"""
    values = {"projects": list(project_ids), "at": at, "id": id, "limit": limit}
    return [made(Reservation, row) for row in tx.run(statement, values)]


def booked(tx: Tx) -> list[str]:
    """Those that come first, first."""
    return [row[0] for row in tx.run("SELECT id FROM reservations WHERE state = 'booked' ORDER BY starts_at, id")]


def set_(tx: Tx, id: str, **changes: Any) -> None:
    """What is known of one that is booked."""
    listed = ", ".join(f"{name} = %({name})s" for name in changes)
    tx.run(f"UPDATE reservations SET {listed} WHERE id = %(id)s AND state = 'booked'", {"id": id, **changes})


def end(tx: Tx, reservation: Reservation, event: str, group_id: str | None = None) -> str:
    """Its last state."""
    becomes = RESERVATION.next(reservation.state, event)
    values = {"id": reservation.id, "state": becomes, "now": tx.now, "group_id": group_id}
    statement = """UPDATE reservations SET state = %(state)s, ended_at = %(now)s, group_id = %(group_id)s
        WHERE id = %(id)s AND state = 'booked'"""
    if becomes is None or tx.run(statement, values).rowcount != 1:
        raise Stale(f"reservation {reservation.id} is not booked any more")
    return becomes
