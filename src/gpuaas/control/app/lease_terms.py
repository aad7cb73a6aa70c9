"""The lease of a launch, and what views show of one."""

from collections.abc import Sequence

from gpuaas.control.store import leases
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, invalid
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import STOPPED, Deadline, Lease, LeasePolicy, deadline


def length(policy: LeasePolicy | None, max_seconds: int | None) -> int | None:
    """What the project allows at most is what a machine gets that asks for nothing."""
    most = policy.max_seconds if policy else None
    if most is not None and max_seconds is not None and max_seconds > most:
        raise too_long(most, "at a time")
    return max_seconds if max_seconds is not None else most


def begin(tx: Tx, group: Sequence[Allocation], max_seconds: int | None, idle_seconds: int | None) -> None:
    """With the launch."""
    if max_seconds is not None or idle_seconds is not None:
        for allocation in group:
            leases.insert_lease(tx, allocation.id, max_seconds, idle_seconds)


def of(item: Allocation, lease: Lease | None, policy: LeasePolicy | None) -> tuple[Lease, Deadline | None] | None:
    """For views: what it has, and when that ends."""
    if lease is None and (policy is None or policy.idle_seconds is None):
        return None
    known = lease or Lease(item.id)
    over = item.state in ("releasing", "released") or known.stage == STOPPED
    return known, None if over else deadline(item, known, policy)


def too_long(seconds: int, when: str) -> Problem:
    return invalid(
        f"This project allows {seconds // 3600} h {seconds % 3600 // 60} min {when}.",
        "Ask for less, or ask an admin of the project to allow more.",
        code="lease_too_long",
    )
