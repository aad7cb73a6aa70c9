"""What each node should look like. Revisions are taken under the node's row lock, so commit order is revision order."""

from typing import Any

import msgspec
from sqlalchemy import select, update

from gpuaas.control.store import tables as t
from gpuaas.control.store.exchange import Answer
from gpuaas.control.store.transaction import Tx
from gpuaas.wire.node import AllocationBody, Spec

Body = dict[str, Any]


# Without the node there is no revision, and so no spec.
_FIRST = """
    WITH next AS (UPDATE nodes SET revision = revision + 1 WHERE id = %(node_id)s RETURNING revision)
    INSERT INTO specs AS s (node_id, id, incarnation, generation, revision, body)
    VALUES (%(node_id)s, %(id)s, %(incarnation)s, %(generation)s, (SELECT revision FROM next), %(body)s::jsonb)
"""
_WRITE = f"""{_FIRST}
    ON CONFLICT (node_id, id) DO UPDATE SET incarnation = excluded.incarnation, generation = excluded.generation,
        revision = excluded.revision, body = excluded.body
    WHERE (s.incarnation, s.generation) < (excluded.incarnation, excluded.generation)
"""
_GOOD = """
    UPDATE specs SET good = body
    WHERE node_id = %(node_id)s AND id = %(id)s AND generation = %(generation)s AND body IS NOT NULL
"""


def write(tx: Tx, node_id: str, id: str, incarnation: int, generation: int, body: Body | None) -> None:
    """A new generation of one object; `body` None is a tombstone. Never goes back."""

    def check(written: Answer) -> None:
        if written.rowcount != 1:
            raise AssertionError(f"spec {id} already has generation {generation} or a newer one")

    tx.later(_WRITE, _values(node_id, id, incarnation, generation, body), check)
    tx.wake(f"node:{node_id}")


def first(tx: Tx, node_id: str, id: str, incarnation: int, generation: int, body: Body) -> None:
    """The same for an object that the node has never heard of: the table itself refuses a second one."""
    tx.later(_FIRST, _values(node_id, id, incarnation, generation, body))
    tx.wake(f"node:{node_id}")


def _values(node_id: str, id: str, incarnation: int, generation: int, body: Body | None) -> dict[str, Any]:
    said = None if body is None else msgspec.json.encode(body).decode()
    return {"node_id": node_id, "id": id, "incarnation": incarnation, "generation": generation, "body": said}


def good(tx: Tx, node_id: str, id: str, generation: int) -> None:
    """The node runs this generation: it is what a failed change goes back to."""
    tx.later(_GOOD, {"node_id": node_id, "id": id, "generation": generation})


def set_good(tx: Tx, node_id: str, id: str, body: Body) -> None:
    """For what must not come back, even when a change fails: a key that was taken away."""
    tx.conn.execute(update(t.specs).where(t.specs.c.node_id == node_id, t.specs.c.id == id).values(good=body))


def bodies(tx: Tx, node_id: str, id: str) -> tuple[Body | None, Body | None]:
    """(wanted, last good)"""
    row = tx.run(*looking(node_id, id)).fetchone()
    return (None, None) if row is None else (row[0], row[1])


def generation(tx: Tx, node_id: str, id: str) -> int:
    """The newest that the node was asked for; 0: it has never heard of it."""
    statement = select(t.specs.c.generation).where(t.specs.c.node_id == node_id, t.specs.c.id == id)
    return tx.conn.execute(statement).scalar_one_or_none() or 0


def looking(node_id: str, id: str) -> tuple[str, dict[str, Any]]:
    """For `bodies`, to be asked for together with others."""
    return "SELECT body, good FROM specs WHERE node_id = %(node_id)s AND id = %(id)s", {"node_id": node_id, "id": id}


_SINCE = """
    SELECT id, incarnation, generation, revision, body FROM specs
    WHERE node_id = %(node_id)s AND revision > %(revision)s ORDER BY revision LIMIT %(limit)s
"""


def since(tx: Tx, node_id: str, revision: int, limit: int) -> list[Spec]:
    rows = tx.run(_SINCE, {"node_id": node_id, "revision": revision, "limit": limit})
    return [
        Spec(id, incarnation, generation, revision, msgspec.convert(body, AllocationBody | None))
        for id, incarnation, generation, revision, body in rows
    ]
