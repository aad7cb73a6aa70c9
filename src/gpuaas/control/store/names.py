"""What people call the things that totals are about."""

from collections.abc import Sequence

from sqlalchemy import select

from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx

_NAMED = {
    "allocation": (t.allocations, t.allocations.c.name),
    "user": (t.users, t.users.c.email),
    "project": (t.projects, t.projects.c.slug),
}


def of(tx: Tx, kind: str, ids: Sequence[str]) -> dict[str, str]:
    """Empty for what is its own name, as an offer's slug is."""
    if kind not in _NAMED or not ids:
        return {}
    table, name = _NAMED[kind]
    rows = tx.conn.execute(select(table.c.id, name.label("name")).where(table.c.id.in_(sorted(set(ids)))))
    return {row.id: row.name for row in rows}
