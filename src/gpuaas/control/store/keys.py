"""Personal SSH public keys."""

from sqlalchemy import delete, insert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import made, names, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import SshKey


def insert_key(tx: Tx, user_id: str, name: str, type: str, blob: str, fingerprint: str) -> SshKey:
    key = SshKey(tx.ids.new("sk"), user_id, name, type, blob, fingerprint, tx.now)
    with unique():
        tx.conn.execute(insert(t.ssh_keys).values(**key.__dict__))
    return key


_KEYS = f"SELECT {names(SshKey)} FROM ssh_keys WHERE user_id = %(user_id)s ORDER BY created_at, id"

LOCKED = f"{_KEYS} FOR KEY SHARE"  # for whoever puts keys on a machine: until then nobody deletes them and misses it


def keys(tx: Tx, user_id: str, *, lock: bool = False) -> list[SshKey]:
    rows = tx.run(LOCKED if lock else _KEYS, {"user_id": user_id})
    return [made(SshKey, row) for row in rows]


def remove_key(tx: Tx, user_id: str, key_id: str) -> bool:
    statement = delete(t.ssh_keys).where(t.ssh_keys.c.id == key_id, t.ssh_keys.c.user_id == user_id)
    return tx.conn.execute(statement).rowcount == 1
