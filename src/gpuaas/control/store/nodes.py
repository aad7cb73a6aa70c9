"""Nodes of the fleet and their join tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import capacity, stores
from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, made, many, names, one, unique
from gpuaas.control.store.tokens import digest
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.kit.ids import is_id
from gpuaas.model.lifecycle import NODE
from gpuaas.model.node import Node


def insert_join_token(
    tx: Tx, created_by: str, org_id: str | None, approve_slots: bool, lifetime: timedelta
) -> tuple[str, str, datetime]:
    secret = "gpj_" + tx.ids.secret()
    token_id, expires_at = tx.ids.new("jt"), tx.now + lifetime
    tx.conn.execute(
        insert(t.join_tokens).values(
            id=token_id,
            hash=digest(secret),
            org_id=org_id,
            approve_slots=approve_slots,
            created_by=created_by,
            created_at=tx.now,
            expires_at=expires_at,
        )
    )
    return token_id, secret, expires_at


def use_join_token(tx: Tx, secret: str) -> tuple[str | None, bool, str] | None:
    """(org_id, approve_slots, created_by), once; None when it is unknown, used or expired."""
    statement = (
        update(t.join_tokens)
        .where(
            t.join_tokens.c.hash == digest(secret),
            t.join_tokens.c.used_at.is_(None),
            t.join_tokens.c.expires_at > tx.now,
        )
        .values(used_at=tx.now)
        .returning(t.join_tokens.c.org_id, t.join_tokens.c.approve_slots, t.join_tokens.c.created_by)
    )
    row = tx.conn.execute(statement).one_or_none()
    return None if row is None else (row.org_id, row.approve_slots, row.created_by)


def insert_node(tx: Tx, name: str, org_id: str | None, public_key: str, approve_slots: bool) -> Node:
    node_id = tx.ids.new("nd")
    statement = insert(t.nodes).values(
        id=node_id,
        name=name,
        org_id=org_id,
        public_key=public_key,
        state=NODE.initial,
        approve_slots=approve_slots,
        created_at=tx.now,
    )
    with unique():
        tx.conn.execute(statement)
    found = node(tx, node_id)
    assert found is not None
    return found


def _select() -> Select[Any]:
    return select(*columns(t.nodes, Node))


def node(tx: Tx, name: str, *, lock: bool = False) -> Node | None:
    """By id, or by name among the live ones."""
    if is_id(name, "nd"):
        statement = _select().where(t.nodes.c.id == name)
    else:
        statement = _select().where(t.nodes.c.name == name, t.nodes.c.state != "removed")
    return one(tx.conn, statement.with_for_update(key_share=True) if lock else statement, Node)


_BRIEFLY = f"""
    SELECT {", ".join("NULL" if name == "inventory" else name for name in names(Node).split(", "))}
    FROM nodes WHERE id = %(id)s
"""


def here(tx: Tx, node_id: str) -> tuple[Node | None, str]:
    """Without its inventory, which is large: for whoever looks at a node with every frame that it sends. And which
    store this is."""
    found, store = tx.together((_BRIEFLY, {"id": node_id}), (stores.CURRENT, {}))
    return (made(Node, found[0]) if found else None), str(store[0][0])


def public_key(tx: Tx, node_id: str) -> str | None:
    statement = select(t.nodes.c.public_key).where(t.nodes.c.id == node_id, t.nodes.c.state != "removed")
    return tx.conn.execute(statement).scalar_one_or_none()


def by_public_key(tx: Tx, public_key: str) -> Node | None:
    return one(tx.conn, _select().where(t.nodes.c.public_key == public_key, t.nodes.c.state != "removed"), Node)


def nodes(tx: Tx) -> list[Node]:
    return many(tx.conn, _select().where(t.nodes.c.state != "removed").order_by(t.nodes.c.name), Node)


def greet(tx: Tx, node_id: str, inventory: dict[str, Any], agent_version: str, runtimes: bool = False) -> int:
    """A new connection: everything an older one still says is fenced from here on."""
    statement = (
        update(t.nodes)
        .where(t.nodes.c.id == node_id)
        .values(epoch=t.nodes.c.epoch + 1, inventory=inventory, agent_version=agent_version, runtimes=runtimes)
        .returning(t.nodes.c.epoch)
    )
    capacity.changed(tx, node_id)
    return int(tx.conn.execute(statement).scalar_one())


def set_inventory(tx: Tx, node_id: str, inventory: dict[str, Any]) -> None:
    tx.conn.execute(update(t.nodes).where(t.nodes.c.id == node_id).values(inventory=inventory))
    capacity.changed(tx, node_id)


def for_runtimes(tx: Tx, node_id: str | None = None) -> list[tuple[str, bool, dict[str, Any]]]:
    """(id, whether its agent can show runtimes, inventory) of one node or of all."""
    return [(row[0], row[1], row[2] or {}) for row in tx.run(*looking_for_runtimes(node_id))]


def looking_for_runtimes(node_id: str | None) -> tuple[str, dict[str, Any]]:
    """For `for_runtimes`, to be asked for together with others."""
    one = "" if node_id is None else "AND id = %(id)s"
    return f"SELECT id, runtimes, inventory FROM nodes WHERE state <> 'removed' {one} ORDER BY id", {"id": node_id}


def set_org(tx: Tx, node_id: str, org_id: str | None) -> None:
    """Whose own pool it is in; None: everybody's."""
    tx.conn.execute(update(t.nodes).where(t.nodes.c.id == node_id).values(org_id=org_id))
    capacity.changed(tx, node_id)
    tx.wake("placement")


# Only nodes of which nothing has to change: whoever is new, lost, fenced, or knows another store is looked at alone.
# Nodes that somebody works on are passed over, so that nobody waits for one node with the locks of others; they are
# named without a revision.
_SAME = """
    FROM nodes n JOIN said s ON s.id = n.id
    WHERE n.state = 'ready' AND n.epoch = s.epoch AND n.revision >= s.revision AND n.synced_store_id = s.store_id
        AND s.store_id = (SELECT id FROM store)
"""
_BEATS = f"""
    WITH said AS (
        SELECT * FROM unnest(%(ids)s::text[], %(epochs)s::bigint[], %(revisions)s::bigint[], %(store_ids)s::text[],
            %(skews)s::float8[]) AS frames (id, epoch, revision, store_id, skew)
    ), same AS (
        SELECT n.id, s.skew {_SAME}
    ), heard AS (
        SELECT n.id, s.skew {_SAME} ORDER BY n.id FOR NO KEY UPDATE OF n SKIP LOCKED
    ), seen AS (
        UPDATE nodes SET last_seen_at = %(now)s, clock_skew_seconds = coalesce(heard.skew, clock_skew_seconds)
        FROM heard WHERE nodes.id = heard.id RETURNING nodes.id, nodes.revision
    )
    SELECT same.id, seen.revision FROM same LEFT JOIN seen ON seen.id = same.id
"""


@dataclass(frozen=True)
class Beat:
    """What a node says of itself: under which epoch, which store's specs it has, and up to which revision."""

    node_id: str
    epoch: int
    revision: int
    store_id: str
    skew: float | None  # by how much its clock is ahead of ours, with the time that the frame took


def beats(tx: Tx, said: Sequence[Beat]) -> dict[str, int | None]:
    """Sees these nodes, where that is all; the newest revision of each that was seen. None: somebody works on it."""
    values = {
        "ids": [each.node_id for each in said],
        "epochs": [each.epoch for each in said],
        "revisions": [each.revision for each in said],
        "store_ids": [each.store_id for each in said],
        "skews": [each.skew for each in said],
        "now": tx.now,
    }
    return dict(tx.run(_BEATS, values).fetchall())


def seen(tx: Tx, node_id: str) -> None:
    """It was heard, and what it has is known. What is counted of it when it falls silent ends at that moment."""
    tx.conn.execute(update(t.nodes).where(t.nodes.c.id == node_id).values(last_seen_at=tx.now))


def set_clock_skew(tx: Tx, node_id: str, seconds: float) -> None:
    """By how much its clock is ahead of ours, with the time that the frame took."""
    tx.conn.execute(update(t.nodes).where(t.nodes.c.id == node_id).values(clock_skew_seconds=seconds))


def add_stranger(tx: Tx, node_id: str, seat: int, holder: str) -> None:
    """A machine that this database does not know has this seat: nobody else gets its port and its ids."""
    row = {"node_id": node_id, "seat": seat, "holder": holder, "seen_at": tx.now}
    tx.conn.execute(upsert(t.strangers).values(row).on_conflict_do_nothing())


def strangers(tx: Tx, node_id: str) -> list[str]:
    """What the node holds and this store does not know."""
    return list(tx.conn.execute(select(t.strangers.c.holder).where(t.strangers.c.node_id == node_id)).scalars())


def forget_stranger(tx: Tx, node_id: str, holder: str) -> None:
    mine = (t.strangers.c.node_id == node_id) & (t.strangers.c.holder == holder)
    tx.conn.execute(delete(t.strangers).where(mine))


def synced(tx: Tx, node_id: str, store_id: str) -> None:
    tx.conn.execute(update(t.nodes).where(t.nodes.c.id == node_id).values(synced_store_id=store_id))


def move(tx: Tx, node: Node, event: str) -> None:
    """The only writer of a node's state."""
    becomes = NODE.next(node.state, event)
    if becomes is None:
        raise Stale(f"node {node.id} is {node.state}: {event} means nothing there")
    statement = update(t.nodes).where(t.nodes.c.id == node.id, t.nodes.c.state == node.state).values(state=becomes)
    if tx.conn.execute(statement).rowcount != 1:
        raise Stale(f"node {node.id} moved")
    capacity.changed(tx, node.id)
    tx.wake("placement")


def silent_since(tx: Tx, before: datetime) -> list[Node]:
    """Nodes that were known, and have not been heard since; rows that another replica works on are left to it."""
    heard = t.nodes.c.last_seen_at
    never = (t.nodes.c.state == "ready") & heard.is_(None)
    statement = _select().where(t.nodes.c.state.in_(("ready", "joined")), (heard < before) | never)
    return many(tx.conn, statement.with_for_update(skip_locked=True, key_share=True), Node)


def with_allocations_out_of_step(tx: Tx, may_be_lost: tuple[str, ...]) -> list[str]:
    """Lost nodes with allocations that look alive, ready nodes with allocations that look lost."""
    node, allocation = t.nodes.c, t.allocations.c
    kept = allocation.active_at.is_not(None) | (allocation.state != "failed")
    statement = (
        select(node.id)
        .join(t.allocations, allocation.node_id == node.id)
        .where(
            ((node.state == "lost") & allocation.state.in_(may_be_lost) & kept)
            | ((node.state == "ready") & (allocation.state == "unreachable"))
        )
        .distinct()
        .order_by(node.id)
    )
    return list(tx.conn.execute(statement).scalars())


def addresses(tx: Tx, ids: set[str]) -> dict[str, str]:
    """Where users reach the published ports of these nodes."""
    address = t.nodes.c.inventory["address"].as_string().label("address")
    rows = tx.conn.execute(select(t.nodes.c.id, address).where(t.nodes.c.id.in_(sorted(ids))))
    return {row.id: row.address for row in rows if row.address}


def last_seen(tx: Tx, ids: set[str]) -> dict[str, datetime | None]:
    rows = tx.conn.execute(select(t.nodes.c.id, t.nodes.c.last_seen_at).where(t.nodes.c.id.in_(sorted(ids))))
    return {row.id: row.last_seen_at for row in rows}
