"""Who was logged in. Ends are heard from several sides and in any order: the earliest one is the end."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, exists, literal, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.login import Login

MACHINE_ENDED = ("exited", "rebooted")  # kinds of facts after which nobody is on the machine any more
RELEASED = "the machine was released"


class Told(NamedTuple):
    """When something happened, by the node's clock and by the order of its journal. The order wins: clocks jump."""

    at: datetime
    journal: str
    sequence: int


class End(NamedTuple):
    at: datetime
    kind: str
    data: dict[str, str]


def opened(
    tx: Tx, allocation: Allocation, session: str, at: datetime, user_id: str | None, fingerprint: str, source: str
) -> bool:
    """False when it was told before."""
    values = {"opened_at": at, "user_id": user_id, "fingerprint": fingerprint, "source": source}
    return _told(tx, allocation, session, values, t.sessions.c.opened_at.is_(None))


def closed(tx: Tx, allocation: Allocation, session: str, at: datetime, reason: str) -> bool:
    """False when it was closed before that."""
    return _told(tx, allocation, session, {"closed_at": at, "close_reason": reason}, _open_at(at))


def machine_ended(tx: Tx, allocation: Allocation, when: Told, reason: str) -> None:
    """Nobody who came before that is there any more. Others may have come since."""
    s, f = t.sessions.c, t.facts.c
    beginning = exists().where(f.object_id == allocation.id, f.node_id == allocation.node_id)
    beginning = beginning.where(f.kind == "session.opened", f.data["session"].as_string() == s.session)
    here = beginning.where(f.journal_incarnation == when.journal)
    before = here.where(f.sequence < when.sequence) | (~here & (s.opened_at < when.at))
    still_there = s.closed_at.is_(None) | (s.closed_at > when.at)
    _end(tx, before & still_there & (s.allocation_id == allocation.id), when.at, reason)


def machine_released(tx: Tx, allocation: Allocation) -> None:
    """Nobody is there any more, whatever the node's clock says."""
    still_open = t.sessions.c.closed_at.is_(None)
    _end(tx, still_open & (t.sessions.c.allocation_id == allocation.id), tx.now, RELEASED)


def end_of_machine(tx: Tx, allocation: Allocation, after: Told) -> End | None:
    """How the machine ended next after a moment, as far as it was told: a beginning may be heard late."""
    f = t.facts.c
    same = f.journal_incarnation == after.journal
    later = (same & (f.sequence > after.sequence)) | (~same & (f.at > after.at))
    statement = (
        select(t.facts.c.at, t.facts.c.kind, t.facts.c.data)
        .where(t.facts.c.object_id == allocation.id, t.facts.c.node_id == allocation.node_id)
        .where(f.kind.in_(MACHINE_ENDED), later)
        .order_by(f.received_at, f.sequence)
        .limit(1)
    )
    row = tx.conn.execute(statement).one_or_none()
    return None if row is None else End(*row)


def user_id(tx: Tx, allocation: Allocation, session: str) -> str | None:
    """Whose session it is, if that was told."""
    statement = select(t.sessions.c.user_id).where(
        t.sessions.c.node_id == allocation.node_id,
        t.sessions.c.allocation_id == allocation.id,
        t.sessions.c.session == session,
    )
    return tx.conn.execute(statement).scalar_one_or_none()


def page(tx: Tx, allocation_id: str, after: tuple[datetime, str] | None, limit: int) -> list[tuple[Login, str | None]]:
    """Newest first, each with the address of whoever it was."""
    statement = (
        select(*columns(t.sessions, Login), t.users.c.email)
        .outerjoin(t.users, t.users.c.id == t.sessions.c.user_id)
        .where(t.sessions.c.allocation_id == allocation_id)
        .order_by(t.sessions.c.heard_at.desc(), t.sessions.c.session.desc())
        .limit(limit)
    )
    if after:
        at, session = after
        statement = statement.where(
            tuple_(t.sessions.c.heard_at, t.sessions.c.session) < tuple_(literal(at), literal(session))
        )
    return [(Login(*row[:-1]), row[-1]) for row in tx.conn.execute(statement)]


def _open_at(at: datetime) -> ColumnElement[bool]:
    return t.sessions.c.closed_at.is_(None) | (t.sessions.c.closed_at > at)


def _end(tx: Tx, which: ColumnElement[bool], at: datetime, reason: str) -> None:
    tx.conn.execute(update(t.sessions).where(which).values(closed_at=at, close_reason=reason))


def _told(tx: Tx, allocation: Allocation, session: str, values: dict[str, Any], where: ColumnElement[bool]) -> bool:
    key = {"node_id": allocation.node_id, "allocation_id": allocation.id, "session": session}
    statement = upsert(t.sessions).values(**key, heard_at=tx.now, **values)
    statement = statement.on_conflict_do_update(index_elements=list(key), set_=values, where=where)
    return tx.conn.execute(statement.returning(t.sessions.c.session)).first() is not None
