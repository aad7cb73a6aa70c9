"""Routes: runtimes of a machine."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from litestar import Response, delete, get, post

from gpuaas.control.app import runtimes
from gpuaas.control.http import pages
from gpuaas.control.http.allocations import changed
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Cursor, Limit, Name
from gpuaas.control.http.runtime_bundles import images_of
from gpuaas.control.http.views import LOGIN_USER
from gpuaas.control.store import image_places, names
from gpuaas.control.store.allocation_runtimes import Row
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import ALLOCATION_RUNTIME
from gpuaas.model.runtime import ROOT, shown
from gpuaas.wire import api

STATEMENT = (
    "Managed runtimes are installed, observed, repaired and rolled back by the platform. What you install yourself is "
    "allowed everywhere else, and is yours."
)


@get("/allocations/{allocation:str}/runtime-bundles", opt={"action": "allocation.read"}, sync_to_thread=True,
     summary="Runtimes of a machine, and who owns which paths")  # fmt: skip
def list_runtimes(request: Req, allocation: Name) -> Response[api.AllocationRuntimes]:
    def work(tx: Tx, caller: Caller) -> api.AllocationRuntimes:
        machine, rows = runtimes.list_runtimes(tx, caller, allocation)
        people = names.of(tx, "user", [row.created_by for row, _ in rows])
        return api.AllocationRuntimes(_bundles(machine, rows, people), None, _ownership(rows))

    return read(request, work)


@get("/allocations/{allocation:str}/runtime-bundles/history", opt={"action": "allocation.read"}, sync_to_thread=True,
     summary="Every runtime that was ever wanted on a machine, the newest first")  # fmt: skip
def history(
    request: Req, allocation: Name, limit: Limit = 100, cursor: Cursor = None
) -> Response[api.RuntimeChangePage]:
    after = pages.position(cursor)

    def work(tx: Tx, caller: Caller) -> api.RuntimeChangePage:
        found = runtimes.history(tx, caller, allocation, after, limit + 1)
        items, more = pages.cut(found, limit)
        cursor = pages.encode(items[-1][0].created_at, items[-1][0].id) if more else None
        people = names.of(tx, "user", [id for row, _ in items for id in (row.created_by, row.ended_by) if id])
        return api.RuntimeChangePage([_change(item, people) for item in items], cursor)

    return read(request, work)


@post("/allocations/{allocation:str}/runtime-bundles", opt={"action": "allocation.runtime"}, status_code=202,
      sync_to_thread=True, summary="Apply a runtime, or switch to another version; the machine runs on")  # fmt: skip
def apply(request: Req, allocation: Name, data: api.ApplyRuntime) -> Response[api.Changed]:
    asked = (data.runtime_bundle_id, data.runtime_bundle_slug, data.version, data.replace)
    is_lost = partial(image_places.lost, images_of(request))

    def work(tx: Tx, caller: Caller) -> Result:
        return changed(tx, *runtimes.apply(tx, caller, allocation, *asked, is_lost))

    return mutate(request, work, data)


@post("/allocations/{allocation:str}/runtime-bundles/{bundle:str}/rollback", opt={"action": "allocation.runtime"},
      status_code=202, sync_to_thread=True, summary="Go back to the version before, or to `version`")  # fmt: skip
def rollback(request: Req, allocation: Name, bundle: Name, data: api.RollbackRuntime) -> Response[api.Changed]:
    def work(tx: Tx, caller: Caller) -> Result:
        return changed(tx, *runtimes.rollback(tx, caller, allocation, bundle, data.version))

    return mutate(request, work, data)


@post("/allocations/{allocation:str}/runtime-bundles/{bundle:str}/repair", opt={"action": "allocation.runtime"},
      status_code=202, sync_to_thread=True, summary="Check a runtime's image, fetch it again if need be")  # fmt: skip
def repair(request: Req, allocation: Name, bundle: Name) -> Response[api.Changed]:
    return mutate(request, lambda tx, caller: changed(tx, *runtimes.repair(tx, caller, allocation, bundle)))


@delete("/allocations/{allocation:str}/runtime-bundles/{bundle:str}", opt={"action": "allocation.runtime"},
        status_code=202, sync_to_thread=True, summary="Take a runtime off a machine, all its versions")  # fmt: skip
def remove(request: Req, allocation: Name, bundle: Name) -> Response[api.Changed]:
    return mutate(request, lambda tx, caller: changed(tx, *runtimes.remove(tx, caller, allocation, bundle)))


def _bundles(machine: Allocation, rows: Sequence[Row], people: Mapping[str, str]) -> list[api.AllocationRuntimeView]:
    return [
        _bundle(machine, [each for each in rows if each[0].slug == slug], people)
        for slug in sorted({row.slug for row, _ in rows})
    ]


def _bundle(machine: Allocation, rows: list[Row], people: Mapping[str, str]) -> api.AllocationRuntimeView:
    by_state = {row.state: (row, bundle) for row, bundle in rows if row.state != "kept"}
    there = by_state.get("applied")
    wanted, bundle = by_state.get("applying") or by_state["applied"]
    specified = {(each.version, each.current) for each in shown(rows)}
    actions = [*ALLOCATION_RUNTIME.allowed(wanted.state)] if there is None else [*ALLOCATION_RUNTIME.allowed("applied")]
    if "runtime" not in machine.allowed_actions:
        actions = []
    if "rollback" in actions and len({row.version for row, _ in rows}) == 1:
        actions.remove("rollback")
    return api.AllocationRuntimeView(
        wanted.slug,
        bundle.product,
        bundle.support,
        next(version for version, current in specified if current),
        there[0].version if there else None,
        wanted.previous_version,
        wanted.state,
        f"source {ROOT}/{wanted.slug}/current/activate.sh",
        [_version(each, people) for each in rows],
        actions,
    )


def _version(item: Row, people: Mapping[str, str]) -> api.RuntimeVersionView:
    row, bundle = item
    return api.RuntimeVersionView(
        bundle.id,
        row.version,
        bundle.digest,
        bundle.root,
        row.state,
        row.state == "applied",
        row.observed,
        row.percent,
        row.message,
        row.applied_at,
        row.created_by,
        row.operation_id,
        people.get(row.created_by, ""),
    )


def _ownership(rows: Sequence[Row]) -> api.Ownership:
    bundles = {bundle.root: bundle for _, bundle in rows}
    platform = [
        api.PlatformPath(root, f"{bundle.product} {bundle.version}, read-only", bundle.support, bundle.name)
        for root, bundle in sorted(bundles.items())
    ]
    platform += [
        api.PlatformPath(ROOT, "where runtimes appear, each with its link `current`", "supported"),
        api.PlatformPath("/etc/gpuaas", "the descriptor of the applied runtimes", "supported"),
    ]
    user = [
        api.UserPath(f"/home/{LOGIN_USER}", "your files, virtual environments, conda, shell settings"),
        api.UserPath("/", "everything else on the machine: packages that you install, containers that you run"),
    ]
    return api.Ownership(platform, user, STATEMENT)


def _change(item: Row, people: Mapping[str, str]) -> api.RuntimeChangeView:
    """`people`: addresses by id."""
    row, bundle = item
    return api.RuntimeChangeView(
        row.id,
        row.action,
        row.slug,
        row.version,
        bundle.digest,
        row.previous_version,
        row.replaces,
        row.state,
        row.message,
        row.created_by,
        row.created_at,
        row.applied_at,
        row.ended_at,
        row.ended_by,
        row.operation_id,
        people.get(row.created_by, ""),
        people.get(row.ended_by or "", ""),
    )


ROUTES: list[Any] = [list_runtimes, history, apply, rollback, repair, remove]
