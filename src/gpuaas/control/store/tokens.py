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
    # Of who only reads it is asked next what they see: the answer comes along.
    found = tx.run(_CALLER_WITH_VISIBLE if tx.reads else _CALLER, {"hash": digest(secret), "now": tx.now}).fetchall()
    if not found:
        return None
    user_id, email, name, platform_role, token_id, scopes, kind, last_used_at = found[0][:_SEEN]
    if tx.reads:
        tx.remembered[user_id] = [row[_SEEN:] for row in found if row[_SEEN] is not None]
    if last_used_at is None or tx.now - last_used_at > USED_RESOLUTION:
        tx.run("UPDATE tokens SET last_used_at = %(now)s WHERE id = %(id)s", {"id": token_id, "now": tx.now})
    return Caller(user_id, email, name, platform_role, token_id, tuple(scopes), kind)


_SEEN = 8  # columns of the caller before those of what they see
_HELD = """
    SELECT users.id, users.email, users.name, users.platform_role, tokens.id, tokens.scopes, users.kind,
        tokens.last_used_at{more}
    FROM tokens JOIN users ON users.id = tokens.user_id{along}
    WHERE tokens.hash = %(hash)s AND tokens.revoked_at IS NULL AND tokens.expires_at > %(now)s
        AND users.disabled_at IS NULL
"""
_CALLER = _HELD.format(more="", along="")
_LATERAL = f" LEFT JOIN LATERAL ({identity.VISIBLE.format(who='users.id')}) AS seen ON true"
_CALLER_WITH_VISIBLE = _HELD.format(more=", seen.*", along=_LATERAL) + " ORDER BY seen.slug, seen.id"


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
