"""What each node should look like. Revisions are taken under the node's row lock, so commit order is revision order."""

from typing import Any

import msgspec
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx
from gpuaas.wire.node import AllocationBody, Spec

Body = dict[str, Any]


def next_revision(tx: Tx, node_id: str) -> int:
    statement = (
        update(t.nodes)
        .where(t.nodes.c.id == node_id)
        .values(revision=t.nodes.c.revision + 1)
        .returning(t.nodes.c.revision)
    )
    return int(tx.conn.execute(statement).scalar_one())


def write(tx: Tx, node_id: str, id: str, incarnation: int, generation: int, body: Body | None) -> None:
    """A new generation of one object; `body` None is a tombstone. Never goes back."""
    values = {
        "incarnation": incarnation,
        "generation": generation,
        "revision": next_revision(tx, node_id),
        "body": body,
    }
    statement = upsert(t.specs).values(node_id=node_id, id=id, **values)
    statement = statement.on_conflict_do_update(
        index_elements=["node_id", "id"],
        set_=values,
        where=(t.specs.c.incarnation < incarnation)
        | ((t.specs.c.incarnation == incarnation) & (t.specs.c.generation < generation)),
    )
    if tx.conn.execute(statement.returning(t.specs.c.id)).first() is None:
        raise AssertionError(f"spec {id} already has generation {generation} or a newer one")
    tx.wake(f"node:{node_id}")


def good(tx: Tx, node_id: str, id: str, generation: int) -> None:
    """The node runs this generation: it is what a failed change goes back to."""
    tx.conn.execute(
        update(t.specs)
        .where(
            t.specs.c.node_id == node_id,
            t.specs.c.id == id,
            t.specs.c.generation == generation,
            t.specs.c.body.is_not(None),
        )
        .values(good=t.specs.c.body)
    )


def set_good(tx: Tx, node_id: str, id: str, body: Body) -> None:
    """For what must not come back, even when a change fails: a key that was taken away."""
    tx.conn.execute(update(t.specs).where(t.specs.c.node_id == node_id, t.specs.c.id == id).values(good=body))


def bodies(tx: Tx, node_id: str, id: str) -> tuple[Body | None, Body | None]:
    """(wanted, last good)"""
    row = tx.conn.execute(
        select(t.specs.c.body, t.specs.c.good).where(t.specs.c.node_id == node_id, t.specs.c.id == id)
    ).one_or_none()
    return (None, None) if row is None else (row.body, row.good)


def since(tx: Tx, node_id: str, revision: int, limit: int) -> list[Spec]:
    statement = (
        select(t.specs.c.id, t.specs.c.incarnation, t.specs.c.generation, t.specs.c.revision, t.specs.c.body)
        .where(t.specs.c.node_id == node_id, t.specs.c.revision > revision)
        .order_by(t.specs.c.revision)
        .limit(limit)
    )
    return [
        Spec(row.id, row.incarnation, row.generation, row.revision, msgspec.convert(row.body, AllocationBody | None))
        for row in tx.conn.execute(statement)
    ]
