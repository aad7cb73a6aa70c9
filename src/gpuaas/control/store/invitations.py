"""Invitations. Only a hash of their secret is kept."""

from datetime import datetime

from sqlalchemy import ColumnElement, insert, select, update

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import build, columns, many, one
from gpuaas.control.store.tokens import digest
from gpuaas.control.store.transaction import Tx
from gpuaas.model.invitation import Invitation

_ALL = columns(t.invitations, Invitation)


def insert_invitation(
    tx: Tx, org_id: str, project_id: str | None, email: str, role: str, by: str, expires_at: datetime
) -> tuple[Invitation, str]:
    """With its secret, which is shown once. It replaces an earlier one for the same address and place."""
    secret = "gpi_" + tx.ids.secret()
    made = Invitation(tx.ids.new("iv"), org_id, project_id, email.lower(), role, by, tx.now, expires_at)
    same = _in(org_id, project_id) & (t.invitations.c.email == made.email) & t.invitations.c.ended_at.is_(None)
    tx.conn.execute(update(t.invitations).where(same).values(ended_at=tx.now))
    tx.conn.execute(insert(t.invitations).values(**made.__dict__, hash=digest(secret)))
    return made, secret


def pending(tx: Tx, org_id: str, project_id: str | None) -> list[Invitation]:
    statement = select(*_ALL).where(_in(org_id, project_id), _valid(tx))
    return many(tx.conn, statement.order_by(t.invitations.c.created_at, t.invitations.c.id), Invitation)


def by_secret(tx: Tx, secret: str) -> Invitation | None:
    return one(tx.conn, select(*_ALL).where(t.invitations.c.hash == digest(secret), _valid(tx)), Invitation)


def revoke(tx: Tx, org_id: str, project_id: str | None, id: str) -> Invitation | None:
    statement = update(t.invitations).where(t.invitations.c.id == id, _in(org_id, project_id), _valid(tx))
    row = tx.conn.execute(statement.values(ended_at=tx.now).returning(*_ALL)).one_or_none()
    return None if row is None else build(Invitation, row)


def revoke_address(tx: Tx, org_id: str, email: str) -> None:
    """Every one for this address, into the organisation or one of its projects."""
    statement = update(t.invitations).where(t.invitations.c.org_id == org_id, t.invitations.c.email == email.lower())
    tx.conn.execute(statement.where(t.invitations.c.ended_at.is_(None)).values(ended_at=tx.now))


def use(tx: Tx, invitation: Invitation, user_id: str) -> bool:
    """Once. False when somebody was quicker, or it was revoked."""
    statement = update(t.invitations).where(t.invitations.c.id == invitation.id, _valid(tx))
    return tx.conn.execute(statement.values(ended_at=tx.now, accepted_by=user_id)).rowcount == 1


def _in(org_id: str, project_id: str | None) -> ColumnElement[bool]:
    return (t.invitations.c.org_id == org_id) & t.invitations.c.project_id.is_not_distinct_from(project_id)


def _valid(tx: Tx) -> ColumnElement[bool]:
    return t.invitations.c.ended_at.is_(None) & (t.invitations.c.expires_at > tx.now)
