"""The identity of the database."""

import threading
from concurrent.futures import ThreadPoolExecutor

from gpuaas.control.store import stores
from gpuaas.control.store.transaction import Store, Tx, connect


def test_many_may_be_the_first_at_once(database_url: str) -> None:
    store, many = Store(connect(database_url)), 6
    together = threading.Barrier(many, timeout=30)

    def first(tx: Tx) -> str:
        stores.fingerprint(tx.conn)  # connected before anybody begins
        together.wait()
        return stores.ensure(tx)

    with ThreadPoolExecutor(many) as pool:
        found = list(pool.map(lambda _: store.transact(first), range(many)))
    assert len(set(found)) == 1
    store.engine.dispose()
