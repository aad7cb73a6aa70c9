"""What was sent to webhooks is forgotten two weeks after it ended. Some a run, the rest in the next."""

from gpuaas.control.store import deliveries
from gpuaas.control.store.transaction import Store

AT_ONCE = 5_000  # rows in one short transaction
TRANSACTIONS = 20


def sweep(store: Store) -> int:
    deleted = 0
    for _ in range(TRANSACTIONS):
        some = store.transact(deliveries.forget_old, AT_ONCE)
        deleted += some
        if some < AT_ONCE:
            break
    return deleted
