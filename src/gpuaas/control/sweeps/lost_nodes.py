"""Nodes that fell silent are lost; allocations follow their nodes, in both directions."""

from datetime import timedelta

from gpuaas.control.operations import reachability
from gpuaas.control.store import nodes
from gpuaas.control.store.transaction import Store, Tx

SILENCE = timedelta(seconds=15)


def sweep(store: Store) -> int:
    changed = 0
    # Nobody could be heard while no server was there, or while this one was behind (sweeps/loop.py).
    if store.clock.now() - store.since >= SILENCE:
        changed = store.transact(mark_silent)
    for node_id in store.transact(out_of_step):
        changed += store.transact(reachability.follow, node_id)
    return changed


def mark_silent(tx: Tx) -> int:
    silent = nodes.silent_since(tx, tx.now - SILENCE)
    for node in silent:
        nodes.move(tx, node, "silent")
    return len(silent)


def out_of_step(tx: Tx) -> list[str]:
    return nodes.with_allocations_out_of_step(tx, reachability.MAY_BE_LOST)
