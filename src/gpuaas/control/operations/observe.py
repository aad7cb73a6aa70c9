"""What a node's report means: the projection from conditions to states, operations and the next generation."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gpuaas.control.operations import bodies, drift, release, runtimes, scrub
from gpuaas.control.store import allocations, operations, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lifecycle import ALLOCATION
from gpuaas.model.operation import KINDS, OF_RUNTIMES, Operation, delivered, done, reported
from gpuaas.wire.node import Condition, Failure

log = logging.getLogger(__name__)

UNKNOWN_FAILURE = Failure("node_failed", "The node could not do it and gave no reason.")


def observe(tx: Tx, node_id: str, epoch: int, seq: int, condition: Condition) -> None:
    """Guarded by node, incarnation, generation and the order of reports: what is stale changes nothing."""
    if scrub.is_scrub(condition.id):
        scrub.observe(tx, node_id, condition)
        return
    allocation = allocations.by_id(tx, condition.id, lock=True)
    if allocation is None or allocation.node_id != node_id:
        drift.removed(tx, node_id, condition)
    if allocation is None or allocation.node_id != node_id or allocation.incarnation != condition.incarnation:
        log.warning("a node reports what it does not have", extra={"fields": {"node_id": node_id, "id": condition.id}})
        return
    if (epoch, seq) <= (allocation.report_epoch, allocation.report_seq):
        return
    if not allocation.observed <= condition.generation <= allocation.generation or allocation.reaped_at:
        return
    allocation = allocations.set_(tx, allocation, observed=condition.generation, report_epoch=epoch, report_seq=seq)
    if allocation.state == "unreachable":
        allocation = allocations.move(tx, allocation, "found")
    # What asked for something newer than this report speaks of is not concerned. The newest generation holds all that
    # was asked for before, on every facet: what the node says about it ends them all, well or not.
    newest = condition.generation == allocation.generation
    concerned = [
        _show_progress(tx, operation, condition, last_word=newest and _ends(operation, condition))
        for operation in operations.running(tx, allocation.id)
        if condition.generation >= operation.generation
    ]
    if newest:
        MEANING[condition.state](tx, allocation, concerned, condition)
    if condition.state == "ready":
        runtimes.observe(tx, allocation, concerned, condition)


def _ends(operation: Operation, condition: Condition) -> bool:
    """By what is said of the machine. A runtime is another matter: see `runtimes`."""
    by_ready = operation.kind != "release" and operation.kind not in OF_RUNTIMES
    return condition.state == "failed" or (condition.state == "ready" and by_ready)


def _show_progress(tx: Tx, operation: Operation, condition: Condition, *, last_word: bool) -> Operation:
    steps = [msgspec.to_builtins(step) for step in condition.steps]
    phases = reported(delivered(operation.phases, steps, tx.now.timestamp()), steps)
    if not last_word:  # otherwise they are written with the end of the operation
        operations.set_phases(tx, operation, phases)
    return replace(operation, phases=phases)


def _converging(tx: Tx, allocation: Allocation, concerned: Sequence[Operation], condition: Condition) -> None:
    pass  # progress is shown already


def _ready(tx: Tx, allocation: Allocation, concerned: Sequence[Operation], condition: Condition) -> None:
    assert allocation.node_id is not None
    if allocation.state == "stopped":
        _stopped(tx, allocation)
    else:
        specs.good(tx, allocation.node_id, allocation.id, condition.generation)
    if ALLOCATION.next(allocation.state, "ready"):
        allocations.move(
            tx,
            allocation,
            "ready",
            active_at=allocation.active_at or tx.now,
            host_key=condition.host_key,
            failure_code=None,
            failure_message=None,
        )
    for operation in concerned:
        if _ends(operation, condition):
            last = KINDS[operation.kind].last
            operations.end(tx, operation, "succeed", phases=done(operation.phases, last, tx.now.timestamp()))


def _stopped(tx: Tx, allocation: Allocation) -> None:
    """A change that fails never goes back to a stopped machine, but to the same one running."""
    assert allocation.node_id is not None
    body, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    if body is not None:
        specs.set_good(tx, allocation.node_id, allocation.id, {**body, "stopped": False})


def _failed(tx: Tx, allocation: Allocation, concerned: Sequence[Operation], condition: Condition) -> None:
    failure = condition.failure or UNKNOWN_FAILURE
    for operation in concerned:
        operations.end(tx, operation, "fail", code=failure.code, message=failure.message)
    runtimes.failed(tx, allocation.id, concerned, failure.message)
    reason: dict[str, Any] = {"failure_code": failure.code, "failure_message": failure.message}
    match allocation.state:
        case "provisioning":
            release.bury(tx, allocation, "launch_failed", **reason)
        case "restarting":
            back = _restored(tx, allocation, **reason) if concerned else None
            if back is None:
                allocations.move(tx, allocation, "restart_failed", **reason)
        case "active":
            back = _restored(tx, allocation) if concerned else None
            if back is None or _is_down(condition):
                allocations.move(tx, back or allocation, "died", **reason)
        case "failed":
            back = _restored(tx, allocation) if concerned else None
            allocations.set_(tx, back or allocation, **reason)


def _restored(tx: Tx, allocation: Allocation, **changes: Any) -> Allocation | None:
    """A failed change goes back to the last good generation, so that a poisoned spec is never tried again."""
    assert allocation.node_id is not None
    _, good = specs.bodies(tx, allocation.node_id, allocation.id)
    if good is None:
        return None
    keys = bodies.key_ids(tx, allocation, good)
    back = allocations.set_(tx, allocation, generation=allocation.generation + 1, key_ids=keys, **changes)
    body = bodies.with_runtimes(tx, back.id, good)
    specs.write(tx, allocation.node_id, back.id, back.incarnation, back.generation, body)
    return back


def _is_down(condition: Condition) -> bool:
    """Not the change that was asked for has failed, but the machine: it did not run, and could not be started."""
    return any(step.name == "container" and step.state == "failed" for step in condition.steps)


def _gone(tx: Tx, allocation: Allocation, concerned: Sequence[Operation], condition: Condition) -> None:
    assert allocation.node_id is not None
    body, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    if body is None:
        release.reap(tx, allocation, [msgspec.to_builtins(each) for each in condition.scrubs])
    elif allocation.state == "provisioning":
        drift.launch_anew(tx, allocation)


MEANING: dict[str, Callable[[Tx, Allocation, Sequence[Operation], Condition], None]] = {
    "converging": _converging,
    "ready": _ready,
    "failed": _failed,
    "gone": _gone,
}
