"""Operators at tenants' objects."""

from datetime import datetime

from sqlalchemy import insert, literal, select, tuple_, update

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, made, many, names, one, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.model.break_glass import BreakGlass
from gpuaas.model.identity import Org

_ALL = columns(t.break_glass, BreakGlass)


def insert_entry(tx: Tx, org_id: str, user_id: str, reason: str, expires_at: datetime) -> BreakGlass:
    entry = BreakGlass(tx.ids.new("bg"), org_id, user_id, reason, tx.now, expires_at, None, None)
    with unique():
        tx.conn.execute(insert(t.break_glass).values(**entry.__dict__))
    return entry


def by_id(tx: Tx, id: str) -> BreakGlass | None:
    return one(tx.conn, select(*_ALL).where(t.break_glass.c.id == id), BreakGlass)


def open_of(tx: Tx, user_id: str) -> list[tuple[BreakGlass, Org]]:
    """Those that give somebody rights right now."""
    rows = tx.run(_OPEN, {"user_id": user_id, "now": tx.now})
    return [(made(BreakGlass, row[: len(_ALL)]), made(Org, row[len(_ALL) :])) for row in rows]


_OPEN = f"""
    SELECT {names(BreakGlass, "break_glass")}, {names(Org, "orgs")}
    FROM break_glass JOIN orgs ON orgs.id = break_glass.org_id
    WHERE user_id = %(user_id)s AND ended_at IS NULL AND expires_at > %(now)s
"""


def unended(tx: Tx, user_id: str, org_id: str) -> BreakGlass | None:
    """Also one whose time is over, which nobody has ended yet."""
    statement = select(*_ALL).where(t.break_glass.c.user_id == user_id, t.break_glass.c.org_id == org_id)
    return one(tx.conn, statement.where(t.break_glass.c.ended_at.is_(None)), BreakGlass)


def overdue(tx: Tx) -> list[BreakGlass]:
    statement = select(*_ALL).where(t.break_glass.c.ended_at.is_(None), t.break_glass.c.expires_at <= tx.now)
    return many(tx.conn, statement.order_by(t.break_glass.c.id), BreakGlass)


def end(tx: Tx, entry: BreakGlass, by: str) -> bool:
    """False when it had ended before."""
    statement = update(t.break_glass).where(t.break_glass.c.id == entry.id, t.break_glass.c.ended_at.is_(None))
    tx.wake(f"user:{entry.user_id}")  # whoever follows something there is cut off now
    return tx.conn.execute(statement.values(ended_at=tx.now, ended_by=by)).rowcount == 1


def page(
    tx: Tx, org_id: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[tuple[BreakGlass, str, str]]:
    """Newest first, each with the slug of the org and the operator's address."""
    statement = (
        select(*_ALL, t.orgs.c.slug, t.users.c.email)
        .join(t.orgs, t.orgs.c.id == t.break_glass.c.org_id)
        .join(t.users, t.users.c.id == t.break_glass.c.user_id)
        .order_by(t.break_glass.c.created_at.desc(), t.break_glass.c.id.desc())
        .limit(limit)
    )
    if org_id is not None:
        statement = statement.where(t.break_glass.c.org_id == org_id)
    if after:
        at, id = after
        statement = statement.where(
            tuple_(t.break_glass.c.created_at, t.break_glass.c.id) < tuple_(literal(at), literal(id))
        )
    return [(BreakGlass(*row[: len(_ALL)]), row.slug, row.email) for row in tx.conn.execute(statement)]
