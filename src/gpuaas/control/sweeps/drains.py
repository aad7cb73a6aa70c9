"""Drains: who is there is told again before the deadline, and released after it, one machine in a transaction."""

from collections.abc import Iterator
from functools import partial

from gpuaas.control.operations import drain
from gpuaas.control.store import clocks, drains
from gpuaas.control.store.transaction import Store
from gpuaas.control.sweeps.each import Turn, each


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0  # a server whose clock is wrong must not end anybody's work
    return each(_turns(store))


def _turns(store: Store) -> Iterator[Turn]:
    for item in store.transact(drains.to_remind, drain.BEFORE):
        yield item.target_id, partial(store.transact, drain.remind, item)
    for item in store.transact(drains.over):
        for id in store.transact(drains.allocation_ids, item):
            yield id, partial(store.transact, drain.enforce, id, item)
