"""API tokens. Only a hash is kept: 256 random bits need no slow hash."""

import hashlib
from datetime import datetime, timedelta

from sqlalchemy import insert, select, update

from gpuaas.control.store import identity
from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.model.identity import API, Caller, Token

USED_RESOLUTION = timedelta(minutes=1)  # `last_used_at` is written at most this often


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def insert_token(
    tx: Tx,
    user_id: str,
    name: str,
    scopes: tuple[str, ...],
    expires_at: datetime,
    *,
    kind: str = API,
    source: str = "",
) -> tuple[Token, str]:
    """The token and its secret, which is shown once and kept nowhere."""
    if not identity.enabled(tx, user_id, lock=True):
        raise Stale(f"{user_id} was disabled in this moment")
    secret = "gpt_" + tx.ids.secret()
    token = Token(tx.ids.new("tk"), user_id, name, scopes, tx.now, expires_at, None, None, kind, source)
    tx.conn.execute(
        insert(t.tokens).values(
            id=token.id,
            user_id=user_id,
            name=name,
            hash=digest(secret),
            scopes=list(scopes),
            kind=kind,
            source=source,
            created_at=tx.now,
            expires_at=expires_at,
        )
    )
    return token, secret


def caller(tx: Tx, secret: str) -> Caller | None:
    """Who holds this secret, if it is valid right now."""
    asked = _CALLER, {"hash": digest(secret), "now": tx.now}
    if tx.reads:  # next it is asked what they see: the answer comes along
        found, visible = tx.together(asked, identity.visible_with(asked[1]))
    else:
        found, visible = tx.run(*asked).fetchall(), []
    if not found:
        return None
    row = found[0]
    if tx.reads:
        tx.remembered[row[0]] = visible
    user_id, email, name, platform_role, token_id, scopes, kind, last_used_at = row
    if last_used_at is None or tx.now - last_used_at > USED_RESOLUTION:
        tx.conn.execute(update(t.tokens).where(t.tokens.c.id == token_id).values(last_used_at=tx.now))
    return Caller(user_id, email, name, platform_role, token_id, tuple(scopes), kind)


_CALLER = """
    SELECT users.id, users.email, users.name, users.platform_role, tokens.id, tokens.scopes, users.kind,
        tokens.last_used_at
    FROM tokens JOIN users ON users.id = tokens.user_id
    WHERE tokens.hash = %(hash)s AND tokens.revoked_at IS NULL AND tokens.expires_at > %(now)s
        AND users.disabled_at IS NULL
"""


def tokens(tx: Tx, user_id: str) -> list[Token]:
    statement = select(*columns(t.tokens, Token)).where(
        t.tokens.c.user_id == user_id, t.tokens.c.revoked_at.is_(None), t.tokens.c.expires_at > tx.now
    )
    return many(tx.conn, statement.order_by(t.tokens.c.created_at), Token)


def revoke(tx: Tx, user_id: str, token_id: str) -> bool:
    statement = (
        update(t.tokens)
        .where(t.tokens.c.id == token_id, t.tokens.c.user_id == user_id, t.tokens.c.revoked_at.is_(None))
        .values(revoked_at=tx.now)
    )
    tx.wake(f"user:{user_id}")  # whoever follows a feed with it is cut off now
    return tx.conn.execute(statement).rowcount == 1


def revoke_all(tx: Tx, user_id: str, *, but: str | None = None) -> int:
    """Every token and login of a user; `but`: except this one."""
    statement = (
        update(t.tokens)
        .where(t.tokens.c.user_id == user_id, t.tokens.c.revoked_at.is_(None), t.tokens.c.expires_at > tx.now)
        .values(revoked_at=tx.now)
    )
    if but is not None:
        statement = statement.where(t.tokens.c.id != but)
    tx.wake(f"user:{user_id}")
    return tx.conn.execute(statement).rowcount
