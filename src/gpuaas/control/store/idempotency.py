"""Answers that were given for an Idempotency-Key, in the transaction of the change itself."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, one
from gpuaas.control.store.transaction import Tx

KEPT = timedelta(hours=48)


@dataclass(frozen=True)
class Answer:
    request_hash: bytes
    status: int
    headers: dict[str, Any]
    body: bytes | None  # None: it held a secret, which is shown once
    project_id: str | None = None  # a retry is answered only to those who still see it


def try_lock(tx: Tx, caller: str, key: str) -> bool:
    """False while another transaction works on the same key."""
    lock = func.pg_try_advisory_xact_lock(func.hashtextextended(f"{caller}\n{key}", 7))
    return bool(tx.conn.execute(select(lock)).scalar_one())


def find(tx: Tx, caller: str, key: str) -> Answer | None:
    table = t.idempotency_keys
    return one(tx.conn, select(*columns(table, Answer)).where(table.c.caller == caller, table.c.key == key), Answer)


def keep(tx: Tx, caller: str, key: str, answer: Answer) -> None:
    tx.conn.execute(insert(t.idempotency_keys).values(caller=caller, key=key, created_at=tx.now, **answer.__dict__))


def forget_old(tx: Tx) -> int:
    return tx.conn.execute(delete(t.idempotency_keys).where(t.idempotency_keys.c.created_at < tx.now - KEPT)).rowcount
