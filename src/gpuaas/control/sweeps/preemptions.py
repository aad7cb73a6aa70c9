"""Machines that were told to give way, and whose grace is over. On hold while the clocks do not agree."""

from gpuaas.control.operations import preempt
from gpuaas.control.store import clocks, preemptions
from gpuaas.control.store.transaction import Store
from gpuaas.kit.errors import Stale


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0
    released = 0
    for id in store.transact(preemptions.due):
        try:
            released += store.transact(preempt.enforce, id)
        except Stale:
            continue  # somebody moved it in this moment; the next run looks again
    return released
