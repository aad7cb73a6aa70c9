"""Leases: machines whose time is over are told of, stopped and released. On hold while the clocks do not agree."""

from functools import partial

from gpuaas.control.operations import lease
from gpuaas.control.store import clocks, leases
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.control.sweeps.each import each


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0
    return each((id, partial(store.transact, lease.step, id)) for id in store.transact(due))


def due(tx: Tx) -> list[str]:
    return [item.id for item, own, policy in leases.held(tx) if lease.is_due(item, own, policy, tx.now)]
