"""API tokens. Only a hash is kept: 256 random bits need no slow hash."""

import hashlib
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import insert, select, update

from gpuaas.control.store import identity
from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many, names
from gpuaas.control.store.transaction import SEEN, Came, Tx
from gpuaas.kit.errors import Stale
from gpuaas.model.identity import API, Caller, Project, Token

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
    held = {"hash": digest(secret), "now": tx.now}
    if not tx.reads:
        found = tx.run(_CALLER, held).fetchall()
    elif tx.along is None:
        found = tx.run(_WITH_SEEN, held).fetchall()
    else:
        found = tx.run(_together(tx.along.statement, tx.along.columns), {**tx.along.values, **held}).fetchall()
    holder = next((row[:_SEEN] for row in found if row[0] is not None), None)
    if holder is None:
        return None
    user_id, email, name, platform_role, token_id, scopes, kind, last_used_at = holder
    if tx.reads:
        _remember(tx, user_id, found)
    if last_used_at is None or tx.now - last_used_at > USED_RESOLUTION:
        tx.run("UPDATE tokens SET last_used_at = %(now)s WHERE id = %(id)s", {"id": token_id, "now": tx.now})
    return Caller(user_id, email, name, platform_role, token_id, tuple(scopes), kind)


def _remember(tx: Tx, user_id: str, found: list[tuple[Any, ...]]) -> None:
    """Of who only reads it is asked next what they see: the answer came along."""
    seen = [row[_SEEN:_ALL] for row in found if row[0] is not None and row[_SEEN] is not None]
    tx.remembered[user_id] = seen
    if tx.along is not None:
        rows = [row[_ALL:] for row in found if row[0] is None]
        tx.came = Came(tx.along.question, frozenset(row[0] for row in seen), rows)


_SEEN = 8  # columns of the caller before those of what they see
_ALL = _SEEN + len(names(Project).split(", ")) + 1
_HELD = """
    SELECT users.id, users.email, users.name, users.platform_role, tokens.id, tokens.scopes, users.kind,
        tokens.last_used_at{more}
    FROM tokens JOIN users ON users.id = tokens.user_id{along}
    WHERE tokens.hash = %(hash)s AND tokens.revoked_at IS NULL AND tokens.expires_at > %(now)s
        AND users.disabled_at IS NULL
"""
_CALLER = _HELD.format(more="", along="")
_LATERAL = f" LEFT JOIN LATERAL ({identity.VISIBLE.format(who='users.id')}) AS seen ON true"
_WITH_SEEN = _HELD.format(more=", seen.*", along=_LATERAL) + " ORDER BY seen.slug, seen.id"


@cache
def _together(statement: str, columns: int) -> str:
    """First a row for each project that is seen (or one of nothing but the caller), then those of the statement."""
    seen = [f"c{number}" for number in range(_ALL)]
    return f"""
        WITH seen ({", ".join(seen)}) AS MATERIALIZED ({_WITH_SEEN}),
        along AS ({statement.replace(SEEN, f"ARRAY(SELECT {seen[_SEEN]} FROM seen)")})
        SELECT seen.*{", NULL" * columns} FROM seen UNION ALL SELECT {"NULL, " * _ALL}along.* FROM along
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
