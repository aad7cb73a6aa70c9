"""Queued launches are placed when something fits: in a fair order, whole groups, one transaction per group.

Who comes later is placed before who comes first, where that does not delay it: nodes are held for the first in line
of each GPU model, and preemptible machines give way to it; the others get what is left.
"""

from collections.abc import Iterator
from functools import partial

from gpuaas.control.operations import waiting
from gpuaas.control.store import queue
from gpuaas.control.store.transaction import Store
from gpuaas.control.sweeps.each import Turn, each
from gpuaas.kit.errors import Stale
from gpuaas.model.queue import Ticket

AT_ONCE = 1_000  # tickets in one run: the first of every project, whoever else has a long line


def sweep(store: Store) -> int:
    return each(_turns(store))


def _turns(store: Store) -> Iterator[Turn]:
    for ticket in store.transact(queue.expired):
        yield ticket.group_id, partial(store.transact, waiting.give_up, ticket)
    delayed: set[str] = set()
    for ticket in store.transact(waiting.line, AT_ONCE):
        yield ticket.group_id, partial(_place, store, ticket, delayed)


def _place(store: Store, ticket: Ticket, delayed: set[str]) -> int:
    """`delayed`: GPU models whose first in line waits."""
    first = ticket.gpu_model not in delayed and not ticket.preemptible
    try:
        placed, waits = store.transact(waiting.place, ticket, first)
    except Stale:
        placed, waits = 0, True  # somebody works on it: nobody behind it is the first for that
    if waits and not ticket.preemptible:
        delayed.add(ticket.gpu_model)
    return placed
