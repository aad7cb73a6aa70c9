"""Reservations: kept where nodes are well, opened at their time, given up when nobody comes. All by agreed clocks."""

from functools import partial

from gpuaas.control.operations import reserve
from gpuaas.control.store import clocks, reservations
from gpuaas.control.store.transaction import Store
from gpuaas.control.sweeps.each import each


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0
    return each((id, partial(store.transact, reserve.step, id)) for id in store.transact(reservations.booked))
