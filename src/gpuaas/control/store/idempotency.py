"""Answers that were given for an Idempotency-Key, in the transaction of the change itself."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import jsonb, made, names
from gpuaas.control.store.transaction import Tx

KEPT = timedelta(hours=48)


@dataclass(frozen=True)
class Answer:
    request_hash: bytes
    status: int
    headers: dict[str, Any]
    body: bytes | None  # None: it held a secret, which is shown once
    project_id: str | None = None  # a retry is answered only to those who still see it


_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%(both)s, 7))"
_FIND = f"SELECT {names(Answer)} FROM idempotency_keys WHERE caller = %(caller)s AND key = %(key)s"
_KEEP = f"""
    INSERT INTO idempotency_keys (caller, key, created_at, {names(Answer)})
    VALUES (%(caller)s, %(key)s, %(now)s, {", ".join(f"%({name})s" for name in names(Answer).split(", "))})
"""


def earlier(tx: Tx, caller: str, key: str) -> tuple[bool, Answer | None]:
    """Whether the key is ours now: not while another transaction works on it. And what was answered for it before."""
    lock = _LOCK, {"both": f"{caller}\n{key}"}
    ours, found = tx.together(lock, (_FIND, {"caller": caller, "key": key}))
    return bool(ours[0][0]), made(Answer, found[0]) if found else None


def keep(tx: Tx, caller: str, key: str, answer: Answer) -> None:
    values = {**answer.__dict__, "headers": jsonb(answer.headers)}
    tx.later(_KEEP, {"caller": caller, "key": key, "now": tx.now, **values})


def forget_old(tx: Tx) -> int:
    return tx.conn.execute(delete(t.idempotency_keys).where(t.idempotency_keys.c.created_at < tx.now - KEPT)).rowcount
