"""Personal SSH public keys."""

from sqlalchemy import delete, insert, select

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import SshKey


def insert_key(tx: Tx, user_id: str, name: str, type: str, blob: str, fingerprint: str) -> SshKey:
    key = SshKey(tx.ids.new("sk"), user_id, name, type, blob, fingerprint, tx.now)
    with unique():
        tx.conn.execute(insert(t.ssh_keys).values(**key.__dict__))
    return key


def keys(tx: Tx, user_id: str, *, lock: bool = False) -> list[SshKey]:
    """`lock`: for whoever puts keys on a machine. Until that is committed, nobody deletes them and misses it."""
    statement = select(*columns(t.ssh_keys, SshKey)).where(t.ssh_keys.c.user_id == user_id)
    statement = statement.order_by(t.ssh_keys.c.created_at, t.ssh_keys.c.id)
    return many(tx.conn, statement.with_for_update(read=True, key_share=True) if lock else statement, SshKey)


def remove_key(tx: Tx, user_id: str, key_id: str) -> bool:
    statement = delete(t.ssh_keys).where(t.ssh_keys.c.id == key_id, t.ssh_keys.c.user_id == user_id)
    return tx.conn.execute(statement).rowcount == 1
