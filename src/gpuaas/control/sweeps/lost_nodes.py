"""Nodes that fell silent are lost; allocations follow their nodes, in both directions."""

from datetime import timedelta
from functools import partial

from gpuaas.control.operations import reachability
from gpuaas.control.store import nodes
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.control.sweeps.each import each

SILENCE = timedelta(seconds=15)


def sweep(store: Store) -> int:
    silent = 0
    # Nobody could be heard while no server was there, or while this one was behind (sweeps/loop.py).
    if store.clock.now() - store.since >= SILENCE:
        silent = store.transact(mark_silent)
    return silent + each(
        (node_id, partial(store.transact, reachability.follow, node_id)) for node_id in store.transact(out_of_step)
    )


def mark_silent(tx: Tx) -> int:
    silent = nodes.silent_since(tx, tx.now - SILENCE)
    for node in silent:
        nodes.move(tx, node, "silent")
    return len(silent)


def out_of_step(tx: Tx) -> list[str]:
    return nodes.with_allocations_out_of_step(tx, reachability.MAY_BE_LOST)
