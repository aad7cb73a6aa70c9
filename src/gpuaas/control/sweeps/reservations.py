"""Reservations: kept where nodes are well, opened at their time, given up when nobody comes. All by agreed clocks."""

from gpuaas.control.operations import reserve
from gpuaas.control.store import clocks, reservations
from gpuaas.control.store.transaction import Store
from gpuaas.kit.errors import Stale, Taken


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0
    changed = 0
    for id in store.transact(reservations.booked):
        try:
            changed += store.transact(reserve.step, id)
        except (Stale, Taken):
            continue  # somebody was faster in this moment; the next run looks again
    return changed
