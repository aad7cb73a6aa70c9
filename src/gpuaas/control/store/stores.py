"""The identity of this database. Nodes compare it: another id means that what they hold must be told first."""

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import capacity
from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx, fingerprint


def ensure(tx: Tx) -> str:
    """The store's id; a new one when this database is a copy or was restored from a backup."""
    current = fingerprint(tx.conn)
    known = select(t.store.c.id, t.store.c.fingerprint).with_for_update()
    row = tx.conn.execute(known).one_or_none()
    if row is None:
        # Several may be the first at the same time: a server, and whoever sets up what it serves.
        tx.conn.execute(upsert(t.store).values(id=tx.ids.new("st"), fingerprint=current).on_conflict_do_nothing())
        row = tx.conn.execute(known).one()
    if row.fingerprint != current:
        return rotate(tx)
    return str(row.id)


CURRENT = "SELECT id FROM store"


def current(tx: Tx) -> str:
    (found,) = tx.run(CURRENT).fetchone() or (None,)
    assert found is not None
    return str(found)


def rotate(tx: Tx) -> str:
    """Every node must say what it holds before this store may place anything on it again."""
    new = tx.ids.new("st")
    tx.conn.execute(update(t.store).values(id=new, fingerprint=fingerprint(tx.conn)))
    tx.conn.execute(
        update(t.nodes).where(t.nodes.c.state.in_(("ready", "lost"))).values(state="joined", synced_store_id=None)
    )
    capacity.close_all(tx)
    return new
