"""Routes: plan, launch, list, show, restart, release; offers."""

from functools import partial
from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import allocations, offers, plans
from gpuaas.control.http import pages, views
from gpuaas.control.http.endpoint import Req, Result, mutate, read, read_here
from gpuaas.control.http.params import Cursor, IncludeReleased, Limit, Name, OptionalName
from gpuaas.control.http.runtime_bundles import images_of
from gpuaas.control.store import image_places, surroundings
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.model.operation import LAUNCH, Operation
from gpuaas.wire import api


@get("/offers", opt={"action": "offer.read"}, sync_to_thread=True, summary="What can be launched")
def list_offers(request: Req) -> Response[api.OfferPage]:
    return read(
        request, lambda tx, caller: api.OfferPage([views.offer(o) for o in offers.list_offers(tx, caller)], None)
    )


@post("/offers", opt={"action": "offer.write"}, sync_to_thread=True, summary="Add an offer (platform administrators)")
def create_offer(request: Req, data: api.NewOffer) -> Response[api.OfferView]:
    values = {name: getattr(data, name) for name in data.__struct_fields__}
    return mutate(request, lambda tx, caller: Result(views.offer(offers.create_offer(tx, caller, **values)), 201), data)


@post(
    "/allocations",
    opt={"action": "allocation.launch"},
    status_code=202,
    sync_to_thread=True,
    summary="Launch machines: compute, access, storage, runtime, lease in one submit",
)
def launch(request: Req, data: api.Launch) -> Response[api.Launched]:
    def work(tx: Tx, caller: Caller) -> Result:
        begun, plan = allocations.launch(tx, caller, data, partial(image_places.lost, images_of(request)))
        started = [each for each in begun if each[1].kind == LAUNCH.name]
        shown = shown_allocations(tx, [allocation for allocation, _ in started])
        done = [views.operation(operation) for _, operation in started]
        applied = [views.operation(operation) for _, operation in begun[len(started) :]]
        body = api.Launched(shown, done, not plan.fits, views.reasons(plan.reasons), applied)
        return Result(body, 202, _location(started[0][1]))

    return mutate(request, work, data)


@post(
    "/allocations/plan",
    opt={"action": "allocation.plan"},
    status_code=200,
    sync_to_thread=True,
    summary="Say what a launch would do, without doing it",
)
def plan(request: Req, data: api.PlanRequest) -> Response[api.PlanView]:
    asked = (data.offer, data.project, data.count, data.runtime_bundle_id, data.runtime_bundle_slug)
    stays = (data.lease.max_duration_seconds if data.lease else None, data.preemptible)
    return read(request, lambda tx, caller: views.plan(plans.plan(tx, caller, *asked, *stays)))


@get("/allocations", opt={"action": "allocation.read"}, summary="Machines you can see")
async def list_allocations(
    request: Req,
    project: OptionalName = None,
    include_released: IncludeReleased = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[api.AllocationPage]:
    after = pages.position(cursor)

    def work(tx: Tx, caller: Caller) -> api.AllocationPage:
        found = allocations.list_shown(tx, caller, project, not include_released, after, limit + 1)
        items, more = pages.cut(found, limit)
        cursor = pages.encode(items[-1].item.created_at, items[-1].item.id) if more else None
        return api.AllocationPage([views.shown(each) for each in items], cursor)

    return await read_here(request, work, surroundings.page_along(not include_released, after, limit + 1))


@get("/allocations/{allocation:str}", opt={"action": "allocation.read"}, summary="One machine")
async def show(request: Req, allocation: Name) -> Response[api.AllocationView]:
    def work(tx: Tx, caller: Caller) -> Any:
        return views.shown(allocations.shown(tx, caller, allocation))

    return await read_here(request, work, surroundings.find_along(allocation))


@post(
    "/allocations/{allocation:str}/restart",
    opt={"action": "allocation.restart"},
    status_code=202,
    sync_to_thread=True,
    summary="Restart: same id, endpoint and host key; sessions and processes end",
)
def restart(request: Req, allocation: Name, data: api.Confirm) -> Response[api.Changed]:
    def work(tx: Tx, caller: Caller) -> Result:
        return changed(tx, *allocations.restart(tx, caller, allocation, data.confirm))

    return mutate(request, work, data)


@post(
    "/allocations/{allocation:str}/release",
    opt={"action": "allocation.release"},
    status_code=202,
    sync_to_thread=True,
    summary="Release: everything on the machine is gone, volumes are kept",
)
def release(request: Req, allocation: Name, data: api.Confirm) -> Response[api.Changed]:
    def work(tx: Tx, caller: Caller) -> Result:
        return changed(tx, *allocations.release(tx, caller, allocation, data.confirm))

    return mutate(request, work, data)


def shown_allocations(tx: Tx, items: list[Allocation]) -> list[api.AllocationView]:
    """With the names and addresses that a person needs."""
    return [views.allocation(shown.item, shown.around) for shown in surroundings.of(tx, items)]


def changed(tx: Tx, allocation: Allocation, operation: Operation) -> Result:
    body = api.Changed(shown_allocations(tx, [allocation])[0], views.operation(operation))
    return Result(body, 202, _location(operation))


def _location(operation: Operation) -> dict[str, str]:
    return {"Location": f"/api/v1/operations/{operation.id}"}


ROUTES: list[Any] = [list_offers, create_offer, launch, plan, list_allocations, show, restart, release]
