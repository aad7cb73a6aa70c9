"""Preemption: machines that were launched as preemptible give way to a request that does not fit without it.

Told first, released when their grace is over, and left alone when they are no longer in the way. Everything about one
request is decided under the lock of its place in the line, or of its reservation.
"""

from collections.abc import Sequence

from gpuaas.control.operations import release
from gpuaas.control.placement.giving_way import Candidate, GivingWay, choose
from gpuaas.control.store import allocations, bookings, operations, preemptions, queue, reservations
from gpuaas.control.store.preemptions import Preemption
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.ids import is_id
from gpuaas.model.allocation import Allocation
from gpuaas.model.operation import say
from gpuaas.model.placement import NodeView, Wanted
from gpuaas.model.reservation import Stay
from gpuaas.wire.node import Notice, encode

MAY_GO = ("provisioning", "active", "restarting", "stopped", "failed")


def ask(tx: Tx, wanted_by: str, nodes: Sequence[NodeView], wanted: Wanted) -> GivingWay | None:
    """Who gives way to it, told; None: it does not fit even then. Who is no longer needed is left alone."""
    found = options(tx, wanted_by, nodes, wanted)
    needed = {item.allocation_id for item in found.machines} if found else set()
    call_off(tx, [item for item in preemptions.of(tx, wanted_by) if item.allocation_id not in needed])
    for item in found.machines if found else ():
        if not item.asked:
            tell(tx, item.allocation_id, wanted_by)
    return found


def options(tx: Tx, wanted_by: str, nodes: Sequence[NodeView], wanted: Wanted) -> GivingWay | None:
    """Who would have to give way; nobody is told."""
    stays = bookings.stays(tx)
    leaving = frozenset(item.slot_id for item in stays if item.claim == "scrubbing")
    return choose(nodes, wanted, _candidates(tx, stays, wanted_by), leaving)


def _candidates(tx: Tx, stays: Sequence[Stay], wanted_by: str) -> list[Candidate]:
    """By machine. Who was told to give way to somebody else is theirs."""
    by_machine: dict[str, list[Stay]] = {}
    for item in stays:
        may = item.preemptible and item.claim == "held" and item.state in MAY_GO
        if may and item.wanted_by in (None, wanted_by):
            by_machine.setdefault(item.allocation_id, []).append(item)
    found = []
    for id, slots in by_machine.items():
        ran = (tx.now - slots[0].active_at).total_seconds() if slots[0].active_at else 0.0
        gpus, asked = sum(slot.gpus for slot in slots), slots[0].wanted_by is not None
        found.append(Candidate(id, slots[0].node_id, frozenset(slot.slot_id for slot in slots), gpus, ran, asked))
    return found


def tell(tx: Tx, allocation_id: str, wanted_by: str) -> None:
    allocation = allocations.by_id(tx, allocation_id)
    due_at = tx.now + tx.preemption_grace
    if allocation is None or not preemptions.set_(tx, allocation_id, wanted_by, due_at):
        return  # somebody else was faster; the next look chooses again
    seconds = int(tx.preemption_grace.total_seconds())
    allocations.announce(tx, "preemption.warning", allocation, due_at=due_at.isoformat(), seconds=seconds)
    if allocation.state == "active" and allocation.node_id is not None:
        tx.post(f"dial:{allocation.node_id}", encode(Notice(allocation.id, warning(allocation, seconds))).decode())


def warning(allocation: Allocation, seconds: int) -> str:
    """What people read on their terminals."""
    left = f"{seconds // 60} minute{'s' if seconds >= 120 else ''}" if seconds >= 60 else f"{seconds} seconds"
    return f"{allocation.name} is preemptible and gives way to others: it is released in {left}. Save your work."


def call_off(tx: Tx, told: Sequence[Preemption]) -> None:
    """They are not in the way any more."""
    preemptions.remove(tx, [item.allocation_id for item in told])
    for item in told:
        allocation = allocations.by_id(tx, item.allocation_id)
        if allocation is not None and allocation.state in (*MAY_GO, "unreachable"):
            allocations.announce(tx, "preemption.cancelled", allocation)


def enforce(tx: Tx, allocation_id: str) -> int:
    """The grace is over: it is released, if it is still in the way."""
    told = preemptions.one(tx, allocation_id)
    allocation = allocations.by_id(tx, allocation_id, lock=True)
    if told is None or allocation is None:
        return 0
    waits = _waits(tx, told.wanted_by)
    if preemptions.one(tx, allocation_id) != told:
        return 0  # decided anew in this moment
    if not waits or allocation.state not in MAY_GO or allocation.reaped_at is not None:
        call_off(tx, [told])
        return 0
    operation = release.start(tx, allocation)
    operations.set_phases(tx, operation, say(operation.phases, "deliver", "preempted: it gives way to another request"))
    preemptions.remove(tx, [allocation_id])
    allocations.announce(tx, "preemption.released", allocation)
    about = {"org_id": allocation.org_id, "project_id": allocation.project_id, "kind": "allocation"}
    said = {"name": allocation.name, "reason": "preempted", "was": allocation.state, "operation": operation.id}
    tx.audit("allocation.release", **about, id=allocation.id, **said)
    return 1


def _waits(tx: Tx, wanted_by: str) -> bool:
    """Whether somebody still wants the place, and nobody decides about it until we are done."""
    if is_id(wanted_by, "rs"):
        reservation = reservations.by_id(tx, wanted_by, lock=True)
        return reservation is not None and reservation.state == "booked"
    return queue.lock(tx, wanted_by) and any(item.state == "queued" for item in allocations.of_group(tx, wanted_by))
