"""The line of launches: who gets in line, is placed, is kept a node, or gives up."""

from dataclasses import replace
from datetime import datetime

from gpuaas.control.operations import launch, release
from gpuaas.control.placement.plan import plan
from gpuaas.control.store import allocations, offers, queue, slots
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.node import Offer
from gpuaas.model.placement import NodeView, Plan
from gpuaas.model.queue import Ticket, order


def begin(tx: Tx, group: list[Allocation], offer: Offer, priority: int, expires_at: datetime | None, why: Plan) -> None:
    first, gpus = group[0], offer.gpu_count * len(group)
    queue.insert(
        tx,
        Ticket(first.group_id, first.org_id, first.project_id, offer.id, offer.gpu_model, gpus, priority, [],
               tx.now, expires_at),
    )  # fmt: skip
    queue.tell_why(tx, first.group_id, why.reasons)


def line(tx: Tx) -> list[Ticket]:
    found = queue.tickets(tx)
    return order(found, queue.used_lately(tx, {ticket.project_id for ticket in found}))


def place(tx: Tx, ticket: Ticket, first: bool) -> tuple[int, bool]:
    """How many were placed; whether the ticket waits for room. `first` of those: nodes are held for it.

    Members that were cancelled meanwhile no longer count; the rest is still all or none. What waits for its own
    project's quota holds nothing up.
    """
    group = [item for item in allocations.group(tx, ticket.group_id) if item.state == "queued"]
    if not group:
        queue.remove(tx, ticket.group_id)
        return 0, False
    offer = offers.offer(tx, ticket.offer_id)
    assert offer is not None
    found = launch.place(tx, group, offer)
    if found.fits:
        queue.remove(tx, ticket.group_id)
        return len(group), False
    queue.tell_why(tx, ticket.group_id, found.reasons)
    blocked_by_quota = any(reason.code.endswith("quota_exceeded") for reason in found.reasons)
    if first and not blocked_by_quota:
        _hold(tx, ticket, offer, len(group))
    else:
        queue.let_go(tx, ticket.group_id)
    return 0, not blocked_by_quota


def _hold(tx: Tx, ticket: Ticket, offer: Offer, count: int) -> None:
    """The nodes where it would fit if everybody there left: those with the fewest to leave, and rather those it has."""
    wanted = replace(launch.wanted(offer, ticket.org_id, count), group_id=ticket.group_id)
    everywhere = sorted(slots.snapshot(tx), key=lambda node: (_to_leave(node), node.held != ticket.group_id, node.id))
    chosen: list[NodeView] = []
    for node in everywhere:
        chosen.append(_emptied(node))
        found = plan(chosen, wanted)
        if found.fits:
            queue.hold(tx, ticket.group_id, sorted({seat.node_id for seat in found.seats}))
            return
    queue.let_go(tx, ticket.group_id)


def _to_leave(node: NodeView) -> int:
    return sum(slot.claimed for slot in node.slots)


def _emptied(node: NodeView) -> NodeView:
    return replace(node, slots=tuple(replace(slot, claimed=False) for slot in node.slots))


def give_up(tx: Tx, ticket: Ticket) -> int:
    """It has waited as long as it was asked to."""
    group = [item for item in allocations.group(tx, ticket.group_id) if item.state == "queued"]
    for allocation in group:
        operation = release.start(tx, allocation)
        about = {"org_id": allocation.org_id, "project_id": allocation.project_id, "kind": "allocation"}
        tx.emit("queue.expired", **about, id=allocation.id, name=allocation.name)
        said = {"name": allocation.name, "reason": "waited too long", "operation": operation.id}
        tx.audit("allocation.release", **about, id=allocation.id, **said)
    queue.remove(tx, ticket.group_id)
    return len(group)
