"""Runtimes of a machine: applied, switched, rolled back, repaired and removed while it runs. Levels in its spec.

deliver -> fetch -> ready, or deliver -> removed

A wish is a row that is `applying`; the version that is there stays `applied` until the node says that the wish is
fulfilled. So a wish that fails is only taken out again: what was there before is what the rows still say.
"""

from collections.abc import Sequence

from gpuaas.control.operations import bodies
from gpuaas.control.store import allocation_runtimes, allocations, operations, specs
from gpuaas.control.store.allocation_runtimes import Row
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.operation import OF_RUNTIMES, RUNTIME_REMOVE, Operation, done, reported, runtime_facet
from gpuaas.model.runtime import MOST_KEPT, AllocationRuntime, RuntimeBundle
from gpuaas.wire.node import Condition, RuntimeReport


def start(
    tx: Tx,
    allocation: Allocation,
    bundle: RuntimeBundle,
    action: str,
    replaces: str | None = None,
    any_architecture: bool = False,
) -> tuple[Allocation, Operation]:
    """`action`: apply, rollback or repair. The machine, locked, should have this version as the current one."""
    rows = [row for row, _ in allocation_runtimes.live(tx, allocation.id) if row.slug == bundle.slug]
    current = next((row.version for row in rows if row.state == "applied"), None)
    for row in rows:
        if row.state == "applying":
            allocation_runtimes.move(tx, row, "supersede", message=f"{bundle.version} was asked for instead")
    changed = _next(tx, allocation)
    operation = operations.start(tx, changed, OF_RUNTIMES[f"runtime.{action}"], runtime_facet(bundle.slug))
    allocation_runtimes.begin(tx, changed.id, bundle, action, current, operation.id, replaces, any_architecture)
    _specify(tx, changed, repair=action == "repair")
    return changed, operation


def remove(tx: Tx, allocation: Allocation, slug: str) -> tuple[Allocation, Operation]:
    for row, _ in allocation_runtimes.live(tx, allocation.id):
        if row.slug == slug:
            _remove(tx, allocation, row)
    changed = _next(tx, allocation)
    operation = operations.start(tx, changed, RUNTIME_REMOVE, runtime_facet(slug))
    _specify(tx, changed)
    if changed.node_id is None:  # nothing is anywhere yet
        operations.end(tx, operation, "succeed", phases=done(operation.phases, "removed", tx.now.timestamp()))
        found = operations.by_id(tx, operation.id)
        assert found is not None
        operation = found
    return changed, operation


def _next(tx: Tx, allocation: Allocation) -> Allocation:
    """Another generation, where there is a node to be told of it; one that waits gets all when it is placed."""
    if allocation.node_id is None:
        return allocation
    return allocations.set_(tx, allocation, generation=allocation.generation + 1)


def _specify(tx: Tx, allocation: Allocation, repair: bool = False) -> None:
    if allocation.node_id is None:
        return
    wanted, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    assert wanted is not None
    body = {**wanted, "repairs": wanted.get("repairs", 0) + 1} if repair else wanted
    body = bodies.with_runtimes(tx, allocation.id, body)
    specs.write(tx, allocation.node_id, allocation.id, allocation.incarnation, allocation.generation, body)


def _remove(tx: Tx, allocation: Allocation, row: AllocationRuntime) -> None:
    allocation_runtimes.move(tx, row, "remove")
    if row.state == "applied":
        allocations.announce(tx, "runtime.removed", allocation, **_of(row))


def observe(tx: Tx, allocation: Allocation, concerned: Sequence[Operation], condition: Condition) -> None:
    """What a node says of a machine's runtimes. Wishes that are newer than what it speaks of are not concerned."""
    open_ = {operation.id: operation for operation in concerned if operation.kind in OF_RUNTIMES}
    if not condition.runtimes and not open_:
        return
    reports = {(report.bundle, report.version): report for report in condition.runtimes}
    rows = allocation_runtimes.live(tx, allocation.id)
    changes = False
    for row, bundle in rows:
        report = reports.get((row.slug, row.version))
        if report is None:
            continue
        if row.state != "applying":
            _level(tx, allocation, row, report)
        elif row.operation_id in open_:
            changes |= _wish(tx, allocation, rows, row, bundle, open_[row.operation_id], report)
    if changes:
        _write_anew(tx, allocation.id)


def failed(tx: Tx, allocation_id: str, concerned: Sequence[Operation], message: str) -> None:
    """The machine could not be made as it was asked for: what was asked for with it is taken out too."""
    ids = {operation.id for operation in concerned if operation.kind in OF_RUNTIMES}
    if ids:
        for row, _ in allocation_runtimes.live(tx, allocation_id):
            if row.state == "applying" and row.operation_id in ids:
                allocation_runtimes.move(tx, row, "fail", message=message)


def _write_anew(tx: Tx, allocation_id: str) -> None:
    allocation = allocations.by_id(tx, allocation_id)
    assert allocation is not None
    assert allocation.node_id is not None
    wanted, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    if wanted is not None:  # a tombstone stays one
        _specify(tx, _next(tx, allocation))


def _level(tx: Tx, allocation: Allocation, row: AllocationRuntime, report: RuntimeReport) -> None:
    """How what was applied before stands now. Nothing is decided by that: a person repairs it, or the node does."""
    allocation_runtimes.set_observed(tx, row, report.state, report.percent, report.message)
    if report.state == "failed" and row.observed != "failed" and row.state == "applied":
        allocations.announce(tx, "runtime.damaged", allocation, **_of(row), message=report.message)


def _wish(
    tx: Tx,
    allocation: Allocation,
    rows: Sequence[Row],
    row: AllocationRuntime,
    bundle: RuntimeBundle,
    operation: Operation,
    report: RuntimeReport,
) -> bool:
    """Whether another body is wanted now."""
    if report.state == "failed":
        _refused(tx, allocation, row, operation, report)
        return True
    if report.state == "ready" and report.current:
        return _fulfilled(tx, allocation, rows, row, bundle, operation)
    allocation_runtimes.set_observed(tx, row, report.state, report.percent, report.message)
    _show_fetching(tx, operation, report)
    return False


def _refused(
    tx: Tx, allocation: Allocation, row: AllocationRuntime, operation: Operation, report: RuntimeReport
) -> None:
    code, message = report.code or "runtime_failed", report.message or "The node could not show it, and gave no reason."
    allocation_runtimes.move(tx, row, "fail", message=message, observed="failed")
    operations.end(tx, operation, "fail", code=code, message=message)
    allocations.announce(tx, "runtime.failed", allocation, **_of(row), code=code, message=message)


def _fulfilled(
    tx: Tx,
    allocation: Allocation,
    rows: Sequence[Row],
    row: AllocationRuntime,
    bundle: RuntimeBundle,
    operation: Operation,
) -> bool:
    kept = []
    for other, _ in rows:
        if other.id == row.id or other.slug != row.slug:
            continue
        if other.version == row.version:
            allocation_runtimes.move(tx, other, "replace", observed="ready")
        elif other.state == "applied":
            kept.append(allocation_runtimes.move(tx, other, "keep"))
        else:
            kept.append(other)
    allocation_runtimes.move(tx, row, "ready", observed="ready")
    surplus = sorted(kept, key=lambda each: each.created_at, reverse=True)[MOST_KEPT:]
    for other in surplus:
        allocation_runtimes.move(tx, other, "replace", message="newer ones lie beside the current one")
    replaced = [other for other, _ in rows if other.slug == row.replaces]
    for other in replaced:
        _remove(tx, allocation, other)
    operations.end(tx, operation, "succeed", phases=done(operation.phases, "ready", tx.now.timestamp()))
    said = {"previous": row.previous_version, "digest": bundle.digest, "by": row.created_by}
    allocations.announce(tx, "runtime.applied", allocation, **_of(row), **said)
    return bool(surplus or replaced)


def _show_fetching(tx: Tx, operation: Operation, report: RuntimeReport) -> None:
    now = tx.now.timestamp()
    before = next(phase for phase in operation.phases if phase["name"] == "fetch")
    step = {
        "name": "fetch",
        "state": "running",
        "started_at": before["started_at"] or now,
        "progress_at": now,
        "percent": report.percent,
        "message": report.message,
    }
    if (before["state"], before["percent"], before["message"]) != ("running", report.percent, report.message):
        operations.set_phases(tx, operation, reported(operation.phases, [step]))


def _of(row: AllocationRuntime) -> dict[str, str]:
    return {"bundle": row.slug, "version": row.version}
