"""The line of launches: who gets in line, is placed, is kept a node, or gives up."""

from dataclasses import replace
from datetime import datetime

from gpuaas.control.operations import launch, preempt, release
from gpuaas.control.placement.plan import plan
from gpuaas.control.store import allocations, offers, operations, preemptions, queue, slots
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.node import Offer
from gpuaas.model.operation import LAUNCH, say
from gpuaas.model.placement import NodeView, Plan, Reason, Wanted
from gpuaas.model.queue import Ticket, order


def begin(tx: Tx, group: list[Allocation], offer: Offer, priority: int, expires_at: datetime | None, why: Plan) -> None:
    first, gpus = group[0], offer.gpu_count * len(group)
    queue.insert(
        tx,
        Ticket(first.group_id, first.org_id, first.project_id, offer.id, offer.gpu_model, gpus, priority, [],
               tx.now, expires_at, first.preemptible),
    )  # fmt: skip
    queue.tell_why(tx, first.group_id, why.reasons)


def line(tx: Tx, most: int | None = None) -> list[Ticket]:
    """`most`: for who has time for about so many."""
    found = queue.tickets(tx, most)
    return order(found, queue.used_lately(tx, {ticket.project_id for ticket in found}))


def place(tx: Tx, ticket: Ticket, first: bool) -> tuple[int, bool]:
    """How many were placed; whether the ticket waits for room. `first` of those: nodes are held for it.

    Preemptible machines give way to it, also if it is not the first; what is held for others is theirs.
    Members that were cancelled meanwhile no longer count; the rest is still all or none. What waits for its own
    project's quota holds nothing up.
    """
    group = [item for item in allocations.group(tx, ticket.group_id) if item.state == "queued"]
    if not queue.lock(tx, ticket.group_id):
        return 0, False
    if not group:
        _leave(tx, ticket)
        return 0, False
    offer = offers.offer(tx, ticket.offer_id)
    assert offer is not None
    found = launch.place(tx, group, offer)
    if first and not found.fits and not _blocked_by_quota(found) and queue.let_others_go(tx, ticket):
        found = launch.place(tx, group, offer)  # a node was kept for who was first before
    if found.fits:
        _leave(tx, ticket)
        return len(group), False
    if _blocked_by_quota(found) or ticket.preemptible:
        queue.let_go(tx, ticket.group_id)
        preempt.call_off(tx, preemptions.of(tx, ticket.group_id))
    else:
        _make_room(tx, ticket, launch.asked(tx, group, offer), first)
    said = _giving_way(tx, ticket)
    queue.tell_why(tx, ticket.group_id, (*said, *found.reasons))
    _say(tx, group, said)
    return 0, not _blocked_by_quota(found)


def _blocked_by_quota(found: Plan) -> bool:
    return any(reason.code.endswith("quota_exceeded") for reason in found.reasons)


def _leave(tx: Tx, ticket: Ticket) -> None:
    """It has its place, or nobody waits for it any more: nobody has to give way to it."""
    preempt.call_off(tx, preemptions.of(tx, ticket.group_id))
    queue.remove(tx, ticket.group_id)


def _giving_way(tx: Tx, ticket: Ticket) -> list[Reason]:
    told = preemptions.of(tx, ticket.group_id)
    if not told:
        return []
    by = max(item.due_at for item in told)
    return [Reason("giving_way", f"preemptible machines give way to it by {by:%H:%M:%S} UTC", len(told))]


def _say(tx: Tx, group: list[Allocation], reasons: list[Reason]) -> None:
    """In the phase that it is in, for whoever follows the launch."""
    message = "; ".join(f"{reason.message} ({reason.count})" for reason in reasons)
    for allocation in group:
        operation = operations.open_(tx, allocation.id, LAUNCH.facet)
        if operation is not None:
            operations.set_phases(tx, operation, say(operation.phases, "place", message))


def _make_room(tx: Tx, ticket: Ticket, wanted: Wanted, first: bool) -> None:
    """Hold the nodes where it fits when preemptible machines have left; else, for the first in line, others."""
    nodes = slots.snapshot(tx)
    gone = preempt.ask(tx, ticket.group_id, nodes, wanted)
    if gone is not None and (first or gone.machines):
        queue.hold(tx, ticket.group_id, sorted({seat.node_id for seat in gone.seats}))
    elif first:
        _hold(tx, ticket, wanted, nodes)
    else:
        queue.let_go(tx, ticket.group_id)


def _hold(tx: Tx, ticket: Ticket, wanted: Wanted, nodes: list[NodeView]) -> None:
    """The nodes where it would fit if everybody there left: those with the fewest to leave, and rather those it has."""
    everywhere = sorted(nodes, key=lambda node: (_to_leave(node), node.held != ticket.group_id, node.id))
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
    _leave(tx, ticket)
    return len(group)
