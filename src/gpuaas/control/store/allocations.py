"""Allocations. `move` is the only writer of their state."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import count
from typing import Any

from sqlalchemy import Select, select

from gpuaas.control.store import tables as t
from gpuaas.control.store import usage
from gpuaas.control.store.exchange import Answer
from gpuaas.control.store.rows import columns, many, names
from gpuaas.control.store.rows import made as built
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale, Taken
from gpuaas.kit.ids import is_id
from gpuaas.model.allocation import Allocation
from gpuaas.model.lifecycle import ALLOCATION, COSTING, PREVIOUS
from gpuaas.model.usage import MACHINE_TIME

Which = tuple[str, dict[str, Any]]  # the end of a statement, from its WHERE on, and its values
UNPLACED: dict[str, Any] = {"node_id": None, "seat": None, "realisation": None}

# What every new one is, beside what its request and its place say.
_FRESH: dict[str, Any] = {
    "previous_state": None,
    "incarnation": 1,
    "observed": 0,
    "report_epoch": 0,
    "report_seq": 0,
    "restarts": 0,
    "host_key": "",
    "failure_code": None,
    "failure_message": None,
    "active_at": None,
    "reaped_at": None,
    "released_at": None,
}
ONE_NAME = "uq_allocations_name_live"
# Of the node, by allocations that are not reaped and by strangers. Under the node's lock.
TAKEN_SEATS = """ARRAY(
    SELECT seat FROM allocations WHERE node_id = {node_id} AND reaped_at IS NULL
    UNION ALL SELECT seat FROM strangers WHERE node_id = {node_id}
)"""
_TAKEN_SEATS = f"SELECT {TAKEN_SEATS.format(node_id='%(node_id)s')}"
_INSERT = """
    INSERT INTO allocations (id, org_id, project_id, name, offer_id, owner_id, group_id, key_ids, state, version,
        node_id, seat, realisation, incarnation, generation, created_at, preemptible)
    VALUES (%(id)s, %(org_id)s, %(project_id)s, %(name)s, %(offer_id)s, %(owner_id)s, %(group_id)s, %(key_ids)s,
        %(state)s, %(version)s, %(node_id)s, %(seat)s, %(realisation)s, 1, %(generation)s, %(created_at)s,
        %(preemptible)s)
"""


def insert_allocation(tx: Tx, *, placed: dict[str, Any] | None = None, **values: Any) -> Allocation:
    """`placed` in the moment in which it was asked for: written once, as that. Its timeline has both steps.

    It is sent later. Who wants to say something else than Taken, when the name is, does so before (`Tx.means`).
    """
    row: dict[str, Any] = {"state": ALLOCATION.initial, "version": 1, "generation": 0, "preemptible": False}
    row |= {**UNPLACED, **values}
    if placed:
        row |= {"state": ALLOCATION.next(ALLOCATION.initial, "placed"), "version": 2, **placed}
    row["created_at"] = tx.now
    tx.means(ONE_NAME, Taken(f"there is a machine called {row['name']!r}"))
    tx.later(_INSERT, row)
    made = Allocation(**{**_FRESH, **{name: value for name, value in row.items() if name != "key_ids"}})
    _tell(tx, replace(made, state=ALLOCATION.initial, version=1), None)
    if placed:
        _tell(tx, made, ALLOCATION.initial)
    return made


_FIELDS = frozenset(names(Allocation).split(", "))
_SELECT = f"SELECT {names(Allocation)} FROM allocations"


def _select() -> Select[Any]:
    return select(*columns(t.allocations, Allocation))


def by_id(tx: Tx, id: str, *, lock: bool = False) -> Allocation | None:
    row = tx.run(f"{_SELECT} WHERE id = %(id)s{' FOR NO KEY UPDATE' if lock else ''}", {"id": id}).fetchone()
    return None if row is None else built(Allocation, row)


def find(tx: Tx, name: str, project_ids: list[str], *, lock: bool = False) -> list[Allocation]:
    """By id, or by name among the live ones, within the projects that the caller can see."""
    which, values = finding(name, project_ids)
    locking = " FOR NO KEY UPDATE" if lock else ""
    return [built(Allocation, row) for row in tx.run(f"{_SELECT} {which}{locking}", values)]


_BY_ID = "WHERE project_id = ANY(%(projects)s) AND id = %(name)s"
_BY_NAME = "WHERE project_id = ANY(%(projects)s) AND name = %(name)s AND state <> 'released'"


def finding(name: str, project_ids: list[str]) -> Which:
    return _BY_ID if is_id(name, "al") else _BY_NAME, {"name": name, "projects": project_ids}


def having(ids: list[str]) -> Which:
    return "WHERE id = ANY(%(ids)s)", {"ids": ids}


def page(
    tx: Tx, project_ids: list[str], *, live: bool, after: tuple[datetime, str] | None, limit: int
) -> list[Allocation]:
    which, values = paging(project_ids, live, after, limit)
    return [built(Allocation, row) for row in tx.run(f"{_SELECT} {which}", values)]


def paging(project_ids: list[str], live: bool, after: tuple[datetime, str] | None, limit: int) -> Which:
    at, id = after or (None, None)
    return _paging(live, after is not None), {"projects": project_ids, "at": at, "id": id, "limit": limit}


@cache
def _paging(live: bool, later_page: bool) -> str:
    older = "AND (created_at, id) < (%(at)s, %(id)s)" if later_page else ""
    return f"""WHERE project_id = ANY(%(projects)s) {"AND state <> 'released'" if live else ""} {older}
        ORDER BY created_at DESC, id DESC LIMIT %(limit)s"""


def name_taken(tx: Tx, project_id: str, names: list[str]) -> str | None:
    statement = select(t.allocations.c.name).where(
        t.allocations.c.project_id == project_id, t.allocations.c.name.in_(names), t.allocations.c.state != "released"
    )
    return tx.conn.execute(statement.limit(1)).scalar_one_or_none()


def queued(tx: Tx, limit: int) -> list[Allocation]:
    statement = _select().where(t.allocations.c.state == "queued")
    statement = statement.order_by(t.allocations.c.created_at, t.allocations.c.id).limit(limit)
    return many(tx.conn, statement, Allocation)


def group(tx: Tx, group_id: str) -> list[Allocation]:
    statement = _select().where(t.allocations.c.group_id == group_id).order_by(t.allocations.c.id)
    return many(tx.conn, statement.with_for_update(key_share=True), Allocation)


def of_group(tx: Tx, group_id: str) -> list[Allocation]:
    """The same to look at, not locked."""
    return many(tx.conn, _select().where(t.allocations.c.group_id == group_id).order_by(t.allocations.c.id), Allocation)


def on_node(tx: Tx, node_id: str, states: tuple[str, ...]) -> list[Allocation]:
    statement = _select().where(t.allocations.c.node_id == node_id, t.allocations.c.state.in_(states))
    return many(tx.conn, statement.order_by(t.allocations.c.id).with_for_update(key_share=True), Allocation)


def owned(tx: Tx, owner_id: str, project_id: str | None = None) -> list[Allocation]:
    """The live ones of a person, everywhere or in one project, locked."""
    statement = _select().where(t.allocations.c.owner_id == owner_id, t.allocations.c.state != "released")
    if project_id is not None:
        statement = statement.where(t.allocations.c.project_id == project_id)
    return many(tx.conn, statement.order_by(t.allocations.c.id).with_for_update(key_share=True), Allocation)


def free_seat(tx: Tx, node_id: str) -> int:
    """Call it under the node's row lock. There are more seats than slots, and what has a seat has a slot."""
    ((taken,),) = tx.run(_TAKEN_SEATS, {"node_id": node_id})
    return lowest_free(taken)


def lowest_free(taken: Collection[int]) -> int:
    return next(seat for seat in count() if seat not in taken)


def move(tx: Tx, allocation: Allocation, event: str, at: datetime | None = None, **changes: Any) -> Allocation:
    """The state that follows from the table, guarded by version; with its usage and its event, in this transaction."""
    becomes = ALLOCATION.next(allocation.state, event)
    if becomes is None:
        raise Stale(f"allocation {allocation.id} is {allocation.state}: {event} means nothing there")
    if becomes == PREVIOUS:
        becomes = allocation.previous_state
    changes["previous_state"] = allocation.state if becomes == "unreachable" else None
    moved = set_(tx, allocation, state=becomes, **changes)
    if allocation.state not in COSTING and moved.state in COSTING:
        usage.open_(tx, moved)
    elif allocation.state in COSTING and moved.state not in COSTING:
        usage.close(tx, moved.id, MACHINE_TIME, at or tx.now)
    _tell(tx, moved, allocation.state, at)
    return moved


def set_(tx: Tx, allocation: Allocation, **changes: Any) -> Allocation:
    """Change fields of exactly the version that was read."""
    given = ", ".join(f"{name} = %({name})s" for name in sorted(changes))
    statement = f"UPDATE allocations SET {given}, version = version + 1 WHERE id = %(id)s AND version = %(version)s"

    def check(changed: Answer) -> None:
        if changed.rowcount != 1:
            raise Stale(f"allocation {allocation.id} moved")

    tx.later(statement, {**changes, "id": allocation.id, "version": allocation.version}, check)
    tx.wake(f"allocation:{allocation.id}")
    shown = {name: value for name, value in changes.items() if name in _FIELDS}
    return replace(allocation, version=allocation.version + 1, **shown)


def tenants_on(tx: Tx, node_id: str) -> set[str]:
    """Whose machines are on a node, or have left something there."""
    statement = "SELECT DISTINCT org_id FROM allocations WHERE node_id = %(id)s AND reaped_at IS NULL"
    return {row[0] for row in tx.run(statement, {"id": node_id})}


def key_ids(tx: Tx, allocation_id: str) -> list[str]:
    statement = select(t.allocations.c.key_ids).where(t.allocations.c.id == allocation_id)
    return list(tx.conn.execute(statement).scalar_one())


def _tell(tx: Tx, allocation: Allocation, was: str | None, since: datetime | None = None) -> None:
    """`since`: when it was so, where that was before anybody noticed."""
    more = {} if since is None else {"since": since.isoformat()}
    announce(
        tx,
        f"allocation.{allocation.state}",
        allocation,
        was=was,
        state=allocation.state,
        version=allocation.version,
        **more,
    )


def announce(tx: Tx, type: str, allocation: Allocation, **data: Any) -> None:
    """An event about it in its project's feed."""
    tx.emit(
        type,
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        kind="allocation",
        id=allocation.id,
        name=allocation.name,
        **data,
    )
