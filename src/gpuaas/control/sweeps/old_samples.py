"""Samples are thinned to one a minute after an hour, and forgotten after a day. Some a run, the rest in the next."""

from gpuaas.control.store import samples
from gpuaas.control.store.transaction import Store

AT_ONCE = 5_000  # rows in one short transaction
TRANSACTIONS = 20  # of each kind in one run: enough for 15,000 machines when it runs every minute


def sweep(store: Store) -> int:
    deleted = 0
    for work in (samples.thin, samples.forget):
        for _ in range(TRANSACTIONS):
            some = store.transact(work, AT_ONCE)
            deleted += some
            if some < AT_ONCE:
                break
    return deleted
