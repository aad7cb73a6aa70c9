"""Leases: machines whose time is over are told of, stopped and released. On hold while the clocks do not agree."""

from gpuaas.control.operations import lease
from gpuaas.control.store import clocks, leases
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.kit.errors import Stale


def sweep(store: Store) -> int:
    if not clocks.compare(store):
        return 0
    changed = 0
    for id in store.transact(due):
        try:
            changed += store.transact(lease.step, id)
        except Stale:
            continue  # somebody moved it in this moment; the next run looks again
    return changed


def due(tx: Tx) -> list[str]:
    return [item.id for item, own, policy in leases.held(tx) if lease.is_due(item, own, policy, tx.now)]
