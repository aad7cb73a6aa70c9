"""Queued launches are placed when something fits: in a fair order, whole groups, one transaction per group.

Who comes later is placed before who comes first, where that does not delay it: nodes are held for the first in line
of each GPU model, and preemptible machines give way to it; the others get what is left.
"""

from gpuaas.control.operations import waiting
from gpuaas.control.store import queue
from gpuaas.control.store.transaction import Store


def sweep(store: Store) -> int:
    for ticket in store.transact(queue.expired):
        store.transact(waiting.give_up, ticket)
    placed, delayed = 0, set()
    for ticket in store.transact(waiting.line):
        first = ticket.gpu_model not in delayed and not ticket.preemptible
        many, waits = store.transact(waiting.place, ticket, first)
        placed += many
        if waits and not ticket.preemptible:
            delayed.add(ticket.gpu_model)
    return placed
