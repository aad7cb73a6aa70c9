"""Runtimes of a machine: apply, switch, upgrade, roll back, repair, remove, and what it has."""

from collections.abc import Sequence
from datetime import datetime

from gpuaas.control.app import allocations as machines
from gpuaas.control.app import runtime_choice as choice
from gpuaas.control.operations import fitness
from gpuaas.control.operations import runtimes as changing
from gpuaas.control.store import allocation_runtimes
from gpuaas.control.store.allocation_runtimes import Row
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict, invalid
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.model.operation import Operation
from gpuaas.model.runtime import MOST_BUNDLES, RuntimeBundle

ACTION = "allocation.runtime"


def list_runtimes(tx: Tx, caller: Caller, name: str) -> tuple[Allocation, list[Row]]:
    allocation = machines.find(tx, caller, "allocation.read", name, lock=False)
    return allocation, allocation_runtimes.live(tx, allocation.id)


def history(tx: Tx, caller: Caller, name: str, after: tuple[datetime, str] | None, limit: int) -> list[Row]:
    allocation = machines.find(tx, caller, "allocation.read", name, lock=False)
    return allocation_runtimes.history(tx, allocation.id, after, limit)


def apply(
    tx: Tx, caller: Caller, name: str, id: str | None, slug: str | None, version: str | None, replaces: str | None,
    is_lost: choice.IsLost = choice.not_lost,
) -> tuple[Allocation, Operation]:  # fmt: skip
    """A bundle that it has changes its version; another one is added, or takes the place of `replaces`."""
    allocation = _changeable(tx, caller, name)
    place = fitness.place(tx, allocation)
    wanted = choice.chosen(tx, allocation.project_id, id, slug, version)
    bundle = wanted.at(place)
    rows = allocation_runtimes.live(tx, allocation.id)
    has = {row.slug for row, _ in rows}
    if replaces is not None and (replaces not in has or replaces == bundle.slug):
        what = "it is the bundle that you apply" if replaces == bundle.slug else "the machine does not have it"
        raise invalid(f"{replaces!r} cannot be replaced: {what}.", "Leave `replace` out, or name another bundle.")
    if bundle.slug not in has and len(has) >= MOST_BUNDLES:
        raise conflict("too_many_runtimes", f"A machine has at most {MOST_BUNDLES} bundles.", "Remove one first.")
    choice.fits(place, bundle)
    choice.has_image(tx, allocation, bundle, is_lost)
    changed, operation = changing.start(tx, allocation, bundle, "apply", replaces, wanted.by_name)
    return _audited(tx, allocation, changed, operation, bundle)


def rollback(tx: Tx, caller: Caller, name: str, slug: str, version: str | None) -> tuple[Allocation, Operation]:
    """To a version that lies beside the current one: to the one before, or to this one."""
    allocation = _changeable(tx, caller, name)
    rows = _of(tx, allocation, slug)
    bundle = _before(rows) if version is None else _beside(rows, version)
    choice.fits(fitness.place(tx, allocation), bundle)
    changed, operation = changing.start(tx, allocation, bundle, "rollback")
    return _audited(tx, allocation, changed, operation, bundle)


def repair(tx: Tx, caller: Caller, name: str, slug: str) -> tuple[Allocation, Operation]:
    """The version that it has, anew: its image is looked at, and fetched again if it is damaged."""
    allocation = _changeable(tx, caller, name)
    rows = _of(tx, allocation, slug)
    bundle = next((bundle for row, bundle in rows if row.state == "applied"), None)
    if bundle is None:
        raise conflict("not_in_this_state", f"{slug} is not there yet.", "Follow its operation, or apply it again.")
    changed, operation = changing.start(tx, allocation, bundle, "repair")
    return _audited(tx, allocation, changed, operation, bundle)


def remove(tx: Tx, caller: Caller, name: str, slug: str) -> tuple[Allocation, Operation]:
    """Every version of the bundle. One that processes have open stays, also for new ones, until the last has ended."""
    allocation = _changeable(tx, caller, name)
    rows = _of(tx, allocation, slug)
    changed, operation = changing.remove(tx, allocation, slug)
    return _audited(tx, allocation, changed, operation, rows[0][1])


def _changeable(tx: Tx, caller: Caller, name: str) -> Allocation:
    allocation = machines.find(tx, caller, ACTION, name, lock=True)
    if "runtime" not in allocation.allowed_actions:
        raise machines.not_now(allocation, "runtime")
    return allocation


def _of(tx: Tx, allocation: Allocation, slug: str) -> list[Row]:
    rows = allocation_runtimes.live(tx, allocation.id)
    found = [(row, bundle) for row, bundle in rows if row.slug == slug]
    if not found:
        has = ", ".join(sorted({row.slug for row, _ in rows}))
        message = f"The machine does not have the runtime {slug!r}."
        raise Problem("not_found", 404, message, f"It has: {has}." if has else "It has none.")
    return found


def _before(rows: Sequence[Row]) -> RuntimeBundle:
    """What was current before the current one; while another is on its way: what is there."""
    by_state = {row.state: (row, bundle) for row, bundle in rows if row.state != "kept"}
    if "applying" in by_state and "applied" in by_state:
        return by_state["applied"][1]
    kept = sorted((each for each in rows if each[0].state == "kept"), key=lambda each: each[0].created_at, reverse=True)
    if not kept or "applied" not in by_state:
        raise conflict(
            "nothing_to_roll_back",
            "No other version of this runtime lies on the machine.",
            "Apply the version that you want.",
        )
    wanted = by_state["applied"][0].previous_version
    return next((bundle for row, bundle in kept if row.version == wanted), kept[0][1])


def _beside(rows: Sequence[Row], version: str) -> RuntimeBundle:
    found = [bundle for row, bundle in rows if row.version == version and row.state != "applying"]
    if not found:
        there = ", ".join(sorted({row.version for row, _ in rows if row.state != "applying"}))
        message = f"The version {version!r} does not lie on the machine."
        raise conflict("nothing_to_roll_back", message, f"There: {there or 'none'}. Apply the version that you want.")
    return found[0]


def _audited(
    tx: Tx, before: Allocation, after: Allocation, operation: Operation, bundle: RuntimeBundle
) -> tuple[Allocation, Operation]:
    return machines.audited(tx, before, operation.kind, operation, runtime=bundle.name, digest=bundle.digest)
