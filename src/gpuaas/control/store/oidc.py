"""Single sign-on: logins under way, whom the provider knows, what orgs make of it."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import build, columns, unique
from gpuaas.control.store.tokens import digest
from gpuaas.control.store.transaction import Tx
from gpuaas.model.oidc import Attempt, GroupRole, Settings

_ATTEMPT = columns(t.oidc_logins, Attempt)


def begin(
    tx: Tx, state: str, cookie: str, redirect: str | None, client_state: str, challenge: str, expires_at: datetime
) -> None:
    tx.conn.execute(delete(t.oidc_logins).where(t.oidc_logins.c.expires_at <= tx.now))
    tx.conn.execute(
        insert(t.oidc_logins).values(
            id=tx.ids.new("ol"),
            state_hash=digest(state),
            cookie_hash=digest(cookie),
            redirect=redirect,
            client_state=client_state,
            challenge=challenge,
            created_at=tx.now,
            expires_at=expires_at,
        )
    )


def take(tx: Tx, state: str, cookie: str) -> Attempt | None:
    """Once, and only by the browser that began it."""
    statement = (
        update(t.oidc_logins)
        .where(t.oidc_logins.c.state_hash == digest(state), t.oidc_logins.c.cookie_hash == digest(cookie))
        .where(t.oidc_logins.c.used_at.is_(None), t.oidc_logins.c.expires_at > tx.now)
        .values(used_at=tx.now)
    )
    row = tx.conn.execute(statement.returning(*_ATTEMPT)).one_or_none()
    return None if row is None else build(Attempt, row)


def succeed(tx: Tx, attempt_id: str, user_id: str, code: str, expires_at: datetime) -> None:
    statement = update(t.oidc_logins).where(t.oidc_logins.c.id == attempt_id)
    tx.conn.execute(statement.values(user_id=user_id, code_hash=digest(code), expires_at=expires_at))


def redeem(tx: Tx, code: str) -> tuple[str, str] | None:
    """Once: whose the code is, and the challenge that whoever brings it must answer."""
    statement = (
        delete(t.oidc_logins)
        .where(t.oidc_logins.c.code_hash == digest(code), t.oidc_logins.c.expires_at > tx.now)
        .returning(t.oidc_logins.c.user_id, t.oidc_logins.c.challenge)
    )
    row = tx.conn.execute(statement).one_or_none()
    return None if row is None else (row.user_id, row.challenge)


def user_of(tx: Tx, issuer: str, subject: str) -> str | None:
    statement = select(t.oidc_identities.c.user_id).where(
        t.oidc_identities.c.issuer == issuer, t.oidc_identities.c.subject == subject
    )
    return tx.conn.execute(statement).scalar_one_or_none()


def link(tx: Tx, issuer: str, subject: str, user_id: str) -> None:
    """Taken when the account is another subject's."""
    with unique():
        row = {"issuer": issuer, "subject": subject, "user_id": user_id, "created_at": tx.now}
        tx.conn.execute(insert(t.oidc_identities).values(**row))


def settings(tx: Tx, org_id: str) -> Settings:
    row = tx.conn.execute(select(t.org_oidc).where(t.org_oidc.c.org_id == org_id)).one_or_none()
    return Settings(org_id, (), ()) if row is None else _settings(row)


def allowing(tx: Tx, domain: str) -> list[Settings]:
    statement = select(t.org_oidc).where(t.org_oidc.c.domains.any(domain)).order_by(t.org_oidc.c.org_id)
    return [_settings(row) for row in tx.conn.execute(statement)]


def set_settings(tx: Tx, changed: Settings) -> None:
    values: dict[str, Any] = {"domains": list(changed.domains), "groups": msgspec.to_builtins(changed.groups)}
    statement = upsert(t.org_oidc).values(org_id=changed.org_id, **values)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["org_id"], set_=values))


def managed(tx: Tx, org_id: str, user_id: str) -> dict[str, tuple[str, bool]]:
    """By project of the org: the role that somebody has there, and whether groups gave it."""
    statement = (
        select(t.memberships.c.project_id, t.memberships.c.role, t.memberships.c.managed)
        .join(t.projects, t.projects.c.id == t.memberships.c.project_id)
        .where(t.projects.c.org_id == org_id, t.memberships.c.user_id == user_id)
    )
    return {row.project_id: (row.role, row.managed) for row in tx.conn.execute(statement)}


def prove_address(tx: Tx, user_id: str) -> bool:
    """False when it was proven before. What somebody else may have set up with it ends: password and keys."""
    unproven = t.users.c.email_proven.is_(False)
    statement = update(t.users).where(t.users.c.id == user_id, unproven).values(email_proven=True, password_hash=None)
    return tx.conn.execute(statement).rowcount == 1


def _settings(row: Any) -> Settings:
    return Settings(row.org_id, tuple(row.domains), tuple(GroupRole(**item) for item in row.groups))
