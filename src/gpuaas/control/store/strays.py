"""Machines that nodes have and this database does not know."""

from dataclasses import replace

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import specs
from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many, one
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Stray
from gpuaas.wire.node import Holding


def seen(tx: Tx, node_id: str, holding: Holding) -> None:
    """Again: what it has is what it said last."""
    said = {"incarnation": holding.incarnation, "generation": holding.generation, "slots": list(holding.slots)}
    statement = upsert(t.strays).values(node_id=node_id, id=holding.id, seen_at=tx.now, **said)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["node_id", "id"], set_=said))


def strays(tx: Tx, node_id: str) -> list[Stray]:
    statement = select(*columns(t.strays, Stray)).where(t.strays.c.node_id == node_id)
    return [_made(found) for found in many(tx.conn, statement.order_by(t.strays.c.id), Stray)]


def stray(tx: Tx, node_id: str, id: str) -> Stray | None:
    statement = select(*columns(t.strays, Stray)).where(t.strays.c.node_id == node_id, t.strays.c.id == id)
    found = one(tx.conn, statement.with_for_update(), Stray)
    return None if found is None else _made(found)


def bury(tx: Tx, stray: Stray) -> None:
    """A tombstone that is newer than all that the node has heard of it."""
    generation = max(stray.generation, specs.generation(tx, stray.node_id, stray.id)) + 1
    mine = (t.strays.c.node_id == stray.node_id) & (t.strays.c.id == stray.id)
    tx.conn.execute(update(t.strays).where(mine).values(removed_at=tx.now))
    specs.write(tx, stray.node_id, stray.id, stray.incarnation, generation, None)


def forget(tx: Tx, node_id: str, id: str) -> None:
    tx.conn.execute(delete(t.strays).where(t.strays.c.node_id == node_id, t.strays.c.id == id))


def _made(stray: Stray) -> Stray:
    return replace(stray, slots=tuple(stray.slots))
