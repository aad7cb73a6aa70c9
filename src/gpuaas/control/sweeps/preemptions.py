"""Machines that were told to give way, and whose grace is over. On hold while the clocks do not agree."""

from functools import partial

from gpuaas.control.operations import preempt
from gpuaas.control.store import clocks, preemptions
from gpuaas.control.store.transaction import Store
from gpuaas.control.sweeps.each import each


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0
    return each((id, partial(store.transact, preempt.enforce, id)) for id in store.transact(preemptions.due))
