"""How long machines may stay: asked for at the launch, extended by its users, limited by a project's leads."""

from datetime import datetime, timedelta
from typing import Any

from gpuaas.control.app import access
from gpuaas.control.app.allocations import find, not_now
from gpuaas.control.app.lease_terms import too_long
from gpuaas.control.operations import restart
from gpuaas.control.store import allocations, bookings, capacity, leases
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.model.lease import IDLE_GPU_PERCENT, STOPPED, Lease, LeasePolicy, deadline, rule_end
from gpuaas.model.operation import Operation
from gpuaas.model.reservation import TAIL


def show_policy(tx: Tx, caller: Caller, name: str) -> LeasePolicy:
    project = access.in_project(tx, caller, "lease.read", name)
    return leases.policy(tx, project.id) or LeasePolicy(project.id, None, IDLE_GPU_PERCENT, None)


def set_policy(
    tx: Tx, caller: Caller, name: str, idle_seconds: int | None, idle_gpu_percent: int, max_seconds: int | None
) -> LeasePolicy:
    """`max_seconds` holds for launches and extensions from now on, the idle rule at once for all machines."""
    project = access.in_project(tx, caller, "lease.write", name)
    made = LeasePolicy(project.id, idle_seconds, idle_gpu_percent, max_seconds)
    leases.set_policy(tx, made)
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "project", "id": project.id}
    said: dict[str, Any] = {
        "idle_seconds": idle_seconds,
        "idle_gpu_percent": idle_gpu_percent,
        "max_seconds": max_seconds,
    }
    tx.audit("lease.policy", **about, **said)
    tx.emit("lease.policy", **about, **said)
    return made


def extend(tx: Tx, caller: Caller, name: str, seconds: int) -> tuple[Allocation, Operation | None]:
    """`seconds` more than it had, or from now on if that is over; a stopped machine is started again.

    What the leads of the project have decided holds for everybody but them: the longest time in all, and the idle rule.
    """
    allocation = find(tx, caller, "allocation.extend", name, lock=True)
    if "extend" not in allocation.allowed_actions:
        raise not_now(allocation, "extend")
    lease, policy = leases.lease(tx, allocation.id), leases.policy(tx, allocation.project_id)
    end = deadline(allocation, lease, policy)
    if end is None and lease.max_seconds is None and lease.idle_seconds is None:
        raise conflict("no_lease", "It has no lease: it stays until it is released.", "There is nothing to extend.")
    changes: dict[str, Any] = {"extended_at": tx.now, "stage": None, "stage_at": None}
    lead = access.leads(tx, caller, allocation.project_id)
    if not lead:
        _within_the_rule(tx, allocation, lease, policy)
    if lead or lease.stage == STOPPED:
        changes["excused_at"] = tx.now
    ends_at = None
    if lease.max_seconds is not None or lease.ends_at is not None:
        own = deadline(allocation, Lease(allocation.id, lease.max_seconds, ends_at=lease.ends_at), None)
        ends_at = max(own.at if own else tx.now, tx.now) + timedelta(seconds=seconds)
        most = policy.max_seconds if policy and not lead else None
        if most is not None and ends_at > (allocation.active_at or tx.now) + timedelta(seconds=most):
            raise too_long(most, "in all, from when it was first up")
        _not_into_a_reservation(tx, allocation, ends_at)
        changes["ends_at"] = ends_at
    leases.set_lease(tx, allocation.id, **changes)
    operation = restart.start(tx, allocation, "resume") if allocation.state == "stopped" else None
    after = allocations.by_id(tx, allocation.id)
    assert after is not None
    ends = {"ends_at": ends_at.isoformat()} if ends_at else {}
    about = {"org_id": after.org_id, "project_id": after.project_id, "kind": "allocation", "id": after.id}
    tx.audit("allocation.extend", **about, name=after.name, was=allocation.state, seconds=seconds, **ends)
    tx.emit("lease.extended", **about, name=after.name, seconds=seconds, **ends)
    return after, operation


def _within_the_rule(tx: Tx, allocation: Allocation, lease: Lease, policy: LeasePolicy | None) -> None:
    """A member's extension is no sign of life to the project's idle rule. It brings back a machine that the rule has
    stopped, and again only if it was used since."""
    end = rule_end(allocation, lease, policy)
    if end is None or policy is None:
        return
    has_own = any(limit is not None for limit in (lease.max_seconds, lease.ends_at, lease.idle_seconds))
    if lease.stage != STOPPED and not has_own:
        raise _ruled("The project's idle rule ends it, and an extension does not change when.")
    before = lease.excused_at if lease.stage == STOPPED and end.at <= tx.now else None
    if before is not None and not leases.was_used(tx, allocation.id, before, policy.idle_gpu_percent):
        raise _ruled("It was brought back before, and nobody has used it since.")


def _ruled(message: str) -> Problem:
    return conflict(
        "idle_rule",
        message,
        "A machine stays while somebody is logged in or it works. An admin of the project can extend it nevertheless.",
    )


def _not_into_a_reservation(tx: Tx, allocation: Allocation, ends_at: datetime) -> None:
    """Who books a slot looks at leases under the node's lock, and so do we."""
    if allocation.node_id is None or allocation.preemptible:
        return  # a preemptible one gives way, whatever its lease
    capacity.lock(tx, [allocation.node_id])
    begins = bookings.next_on(tx, allocation.id)
    if begins is not None and ends_at + TAIL > begins:
        latest = begins - TAIL
        raise conflict(
            "reserved",
            f"Its place is reserved from {begins:%Y-%m-%d %H:%M} UTC on.",
            f"It can stay until {latest:%Y-%m-%d %H:%M} UTC; launch another one for the time after that."
            if latest > tx.now
            else "Launch another one.",
            latest=latest.isoformat(),
        )
