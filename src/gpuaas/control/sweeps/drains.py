"""Drains whose deadline has passed: what is still there is released, one machine in a transaction."""

from gpuaas.control.operations import drain
from gpuaas.control.store import clocks, drains
from gpuaas.control.store.transaction import Store
from gpuaas.kit.errors import Stale


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0  # a server whose clock is wrong must not end anybody's work
    released = 0
    for item in store.transact(drains.over):
        for id in store.transact(drains.allocation_ids, item):
            try:
                released += store.transact(drain.enforce, id, item)
            except Stale:
                continue  # somebody moved it in this moment; the next run looks again
    return released
