"""Release: absorbs everything else, always ends. A tombstone is the only thing that makes a node delete.

deliver -> (the node's steps, in reverse) -> free
"""

from typing import Any

from gpuaas.control.store import allocation_runtimes, allocations, claims, logins, operations, slots, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.operation import MACHINE, RELEASE, Operation, done


def start(tx: Tx, allocation: Allocation) -> Operation:
    if allocation.state == "queued":
        allocation_runtimes.released(tx, allocation.id)
        moved = allocations.move(tx, allocation, "release", reaped_at=tx.now, released_at=tx.now)
        return _finished(tx, moved)
    if allocation.reaped_at is not None:
        moved = allocations.move(tx, allocation, "release")
        return _finished(tx, allocations.move(tx, moved, "gone", released_at=tx.now))
    moved = bury(tx, allocation, "release")
    return operations.start(tx, moved, RELEASE)


def bury(tx: Tx, allocation: Allocation, event: str, **changes: Any) -> Allocation:
    """Write a tombstone (once) and let go of the slots, to be free when the node has scrubbed them."""
    assert allocation.node_id is not None
    body, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    allocation_runtimes.released(tx, allocation.id)
    if body is None:
        return allocations.move(tx, allocation, event, **changes)
    moved = allocations.move(tx, allocation, event, generation=allocation.generation + 1, **changes)
    claims.scrubbing(tx, moved.id)
    specs.write(tx, allocation.node_id, moved.id, moved.incarnation, moved.generation, None)
    return moved


def reap(tx: Tx, allocation: Allocation, scrubs: list[dict[str, Any]]) -> None:
    """The node proved that nothing is left: slots are free, or quarantined where scrubbing failed."""
    dirty = {scrub["gpu"]: scrub["evidence"] for scrub in scrubs if not scrub["clean"]}
    for slot in slots.by_ids(tx, claims.slot_ids(tx, allocation.id)):
        bad = [f"{gpu}: {dirty[gpu]}" for gpu in slot.gpus if gpu in dirty]
        if bad and slot.state == "approved":
            slots.move(tx, slot, "quarantine", "scrub failed: " + "; ".join(bad))
    assert allocation.node_id is not None
    claims.free(tx, allocation.id, allocation.node_id, scrubs)
    logins.machine_released(tx, allocation)
    if allocation.state == "releasing":
        allocations.move(tx, allocation, "gone", reaped_at=tx.now, released_at=tx.now)
        for operation in operations.running(tx, allocation.id):
            if operation.facet == MACHINE:
                phases = done(operation.phases, RELEASE.last, tx.now.timestamp())
                operations.end(tx, operation, "succeed", phases=phases)
            else:
                operations.end(tx, operation, "supersede", message="superseded by release")
    else:
        allocations.set_(tx, allocation, reaped_at=tx.now)


def _finished(tx: Tx, allocation: Allocation) -> Operation:
    """Nothing was on any node: the operation begins and ends here."""
    operation = operations.start(tx, allocation, RELEASE)
    phases = done(operation.phases, RELEASE.last, tx.now.timestamp())
    operations.end(tx, operation, "succeed", phases=phases)
    found = operations.by_id(tx, operation.id)
    assert found is not None
    return found
