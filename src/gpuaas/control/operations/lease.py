"""What a lease does to its machine when its time comes: tell, stop, release. Told again only when it is news."""

from datetime import datetime, timedelta

from gpuaas.control.operations import release, stop
from gpuaas.control.store import allocations, leases
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import (
    GRACE,
    IDLE_GPU_PERCENT,
    STOPPED,
    Deadline,
    Lease,
    LeasePolicy,
    deadline,
    idle_limit,
    is_later,
    may_be_released,
    next_stage,
)
from gpuaas.wire.node import Notice, encode

LOOK = timedelta(seconds=30)  # how often it is asked whether a machine does something
RECENT = timedelta(minutes=2)  # an older measurement says nothing about now
LATE = timedelta(minutes=1)  # a measurement may be so old when it comes: see link/samples.py


def is_due(allocation: Allocation, lease: Lease, policy: LeasePolicy | None, now: datetime) -> bool:
    """Whether there is anything to do, from what was read without a lock."""
    if lease.stage == STOPPED:
        return allocation.state == "active" or may_be_released(lease, now)
    if _look_again(allocation, lease, policy, now):
        return True
    return next_stage(lease, deadline(allocation, lease, policy), now) != lease.stage


def step(tx: Tx, allocation_id: str) -> int:
    """One machine, under its lock, as it is now. Returns whether anything changed."""
    allocation = allocations.by_id(tx, allocation_id, lock=True)
    if allocation is None or allocation.state not in leases.HELD:
        return 0
    lease, policy = leases.lease(tx, allocation.id), leases.policy(tx, allocation.project_id)
    if lease.stage == STOPPED:
        return _over(tx, allocation, lease)
    if _look_again(allocation, lease, policy, tx.now):
        percent = policy.idle_gpu_percent if policy else IDLE_GPU_PERCENT
        after = lease.looked_at - LATE if lease.looked_at else allocation.active_at or tx.now
        busy_at = leases.was_busy(tx, allocation.id, after, RECENT, percent)
        known = [moment for moment in (busy_at, lease.busy_at) if moment is not None]
        leases.looked(tx, allocation.id, max(known, default=None))
        lease = leases.lease(tx, allocation.id)
    end = deadline(allocation, lease, policy)
    stage = next_stage(lease, end, tx.now)
    if stage == lease.stage:
        return 0
    if end is None or not is_later(stage, lease.stage):
        leases.set_lease(tx, allocation.id, stage=stage, stage_at=tx.now if stage else None)
        return 1
    if stage == STOPPED:
        return _stop(tx, allocation, end)
    leases.set_lease(tx, allocation.id, stage=stage, stage_at=tx.now)
    _warn(tx, allocation, end)
    return 1


def _look_again(allocation: Allocation, lease: Lease, policy: LeasePolicy | None, now: datetime) -> bool:
    # On a silent node it may well be at work: what is not measured is not idle.
    if idle_limit(lease, policy) is None or allocation.state not in ("active", "unreachable"):
        return False
    if lease.looked_at is None or now - lease.looked_at >= LOOK:
        return True
    return next_stage(lease, deadline(allocation, lease, policy), now) == STOPPED  # not by what was half a minute ago


def _stop(tx: Tx, allocation: Allocation, end: Deadline) -> int:
    """What is on its way up is waited for; what does not run has nothing to stop."""
    if allocation.state == "restarting":
        return 0
    leases.set_lease(tx, allocation.id, stage=STOPPED, stage_at=tx.now)
    allocations.announce(tx, "lease.ended", allocation, reason=end.reason, released_at=(tx.now + GRACE).isoformat())
    if allocation.state == "active":
        stop.start(tx, allocation)
    return 1


def _over(tx: Tx, allocation: Allocation, lease: Lease) -> int:
    """The grace is counted from the end of the lease, whatever else happened to the machine since."""
    if may_be_released(lease, tx.now):
        allocations.announce(tx, "lease.released", allocation)
        operation = release.start(tx, allocation)
        about = {"org_id": allocation.org_id, "project_id": allocation.project_id, "kind": "allocation"}
        said = {"name": allocation.name, "reason": "its lease is over", "was": allocation.state}
        tx.audit("allocation.release", **about, id=allocation.id, **said, operation=operation.id)
        return 1
    if allocation.state == "active":  # it had failed, or was unreachable, when its time came
        stop.start(tx, allocation)
        return 1
    return 0


def _warn(tx: Tx, allocation: Allocation, end: Deadline) -> None:
    left = max(int((end.at - tx.now).total_seconds()), 0)
    allocations.announce(tx, "lease.warning", allocation, reason=end.reason, ends_at=end.at.isoformat(), seconds=left)
    if allocation.state == "active" and allocation.node_id is not None:
        tx.post(f"dial:{allocation.node_id}", encode(Notice(allocation.id, warning(allocation, end, left))).decode())


def warning(allocation: Allocation, end: Deadline, seconds: int) -> str:
    """What people read on their terminals."""
    minutes = max(seconds // 60, 1)
    why = "its lease ends" if end.reason == "duration" else "it does nothing"
    keep = "use it, or stay logged in" if end.by_rule else f"gpuaas extend {allocation.name} 4h"
    return (
        f"{allocation.name} is stopped in {minutes} minute{'s' if minutes > 1 else ''} ({why}), and released "
        f"{int(GRACE.total_seconds()) // 60} minutes later. To keep it: {keep}"
    )
