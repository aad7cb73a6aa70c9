"""Drain: nothing new comes to a node or a slot. Who is there is told, and has to go by the deadline, if one is set."""

from gpuaas.control.operations import release
from gpuaas.control.store import allocations, drains
from gpuaas.control.store.drains import Drain
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation

MUST_GO = ("provisioning", "active", "restarting", "stopping", "stopped", "failed", "unreachable")


def start(tx: Tx, drain: Drain) -> list[Allocation]:
    """Who was told. Their machines run on, and work until the deadline."""
    drains.set_(tx, drain)
    found = [allocations.by_id(tx, id) for id in drains.allocation_ids(tx, drain)]
    told = [item for item in found if item is not None and item.state in MUST_GO]
    for allocation in told:
        tx.emit(
            "drain.started",
            org_id=allocation.org_id,
            project_id=allocation.project_id,
            kind="allocation",
            id=allocation.id,
            name=allocation.name,
            reason=drain.reason,
            deadline=drain.deadline.isoformat() if drain.deadline else None,
        )
    return told


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
