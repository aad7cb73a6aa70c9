"""Drain: nothing new comes to a node or a slot. Who is there is told, and has to go by the deadline, if one is set."""

from dataclasses import replace

from gpuaas.control.operations import release
from gpuaas.control.store import allocations, capacity, drains
from gpuaas.control.store.drains import Drain
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import FIRST_WARNING, LAST_WARNING
from gpuaas.wire.node import Notice, encode

BEFORE = (FIRST_WARNING, LAST_WARNING)  # as for a lease
MUST_GO = ("provisioning", "active", "restarting", "stopping", "stopped", "failed", "unreachable")


def start(tx: Tx, drain: Drain) -> list[Allocation]:
    """Who was told. Their machines run on, and work until the deadline."""
    drains.set_(tx, replace(drain, warned_at=tx.now))
    return _tell(tx, drain, again=False)


def remind(tx: Tx, drain: Drain) -> int:
    """Its deadline comes near: who is still there is told again. How many."""
    capacity.lock(tx, [drain.node_id])
    found = drains.to_remind(tx, BEFORE, drain.target_id)
    for item in found:  # none: it was lifted, has another deadline, or somebody else has told them
        drains.warned(tx, item.target_id)
    return sum(len(_tell(tx, item, again=True)) for item in found)


def _tell(tx: Tx, drain: Drain, *, again: bool) -> list[Allocation]:
    """By an event, and on their open terminals."""
    found = [allocations.by_id(tx, id) for id in drains.allocation_ids(tx, drain)]
    told = [item for item in found if item is not None and item.state in MUST_GO]
    for allocation in told:
        deadline = drain.deadline.isoformat() if drain.deadline else None
        said = {"reason": drain.reason, "deadline": deadline}
        allocations.announce(tx, "drain.warning" if again else "drain.started", allocation, **said)
        if allocation.state == "active" and allocation.node_id is not None:
            notice = Notice(allocation.id, warning(allocation, drain))
            tx.post(f"dial:{allocation.node_id}", encode(notice).decode())
    return told


def warning(allocation: Allocation, drain: Drain) -> str:
    """What people read on their terminals, which show plain characters only."""
    reason = drain.reason.encode("ascii", "replace").decode()
    if drain.deadline is None:
        return f"The node of {allocation.name} gets nothing new ({reason}). You may stay."
    when = f"{drain.deadline:%Y-%m-%d %H:%M} UTC"
    return f"{allocation.name} is released at {when}, because of its node ({reason}). Save your work by then."


def enforce(tx: Tx, allocation_id: str, drain: Drain) -> bool:
    """The deadline has passed: what is still there is released."""
    allocation = allocations.by_id(tx, allocation_id, lock=True)
    if allocation is None or allocation.state not in MUST_GO or allocation.reaped_at is not None:
        return False
    if not drains.still_over(tx, drain):
        return False
    operation = release.start(tx, allocation)
    about = {"org_id": allocation.org_id, "project_id": allocation.project_id, "kind": "allocation"}
    said = {"name": allocation.name, "reason": drain.reason}
    tx.emit("drain.released", **about, id=allocation.id, **said)
    tx.audit("allocation.release", **about, id=allocation.id, **said, was=allocation.state, operation=operation.id)
    return True
