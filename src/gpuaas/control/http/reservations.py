"""Routes: book capacity ahead, list, show, cancel."""

from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import reservations
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.moments import moment
from gpuaas.control.http.params import Cursor, IncludeEnded, Limit, Name, OptionalName
from gpuaas.control.store import allocations, offers
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import RESERVATION
from gpuaas.model.reservation import Reservation
from gpuaas.wire import api


@post("/reservations", opt={"action": "reservation.write"}, status_code=201, sync_to_thread=True,
      summary="Book machines for a time that is to come")  # fmt: skip
def book(request: Req, data: api.NewReservation) -> Response[api.ReservationView]:
    starts_at, ends_at = moment(data.starts_at), moment(data.ends_at)
    assert starts_at is not None
    assert ends_at is not None
    name, keys = (data.launch.name, data.launch.keys) if data.launch else (None, None)

    def work(tx: Tx, caller: Caller) -> Result:
        asked = (data.name, data.offer, data.project, data.count, starts_at, ends_at, name, keys)
        return Result(_views(tx, [reservations.book(tx, caller, *asked)])[0], 201)

    return mutate(request, work, data)


@get("/reservations", opt={"action": "reservation.read"}, sync_to_thread=True,
     summary="What is booked, the next one first; with `all` also what was")  # fmt: skip
def list_reservations(
    request: Req,
    project: OptionalName = None,
    include_ended: IncludeEnded = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[api.ReservationPage]:
    after = pages.position(cursor)

    def work(tx: Tx, caller: Caller) -> api.ReservationPage:
        found = reservations.list_reservations(tx, caller, project, not include_ended, after, limit + 1)
        items, more = pages.cut(found, limit)
        cursor = pages.encode(items[-1].starts_at, items[-1].id) if more else None
        return api.ReservationPage(_views(tx, list(items)), cursor)

    return read(request, work)


@get("/reservations/{reservation:str}", opt={"action": "reservation.read"}, sync_to_thread=True,
     summary="One reservation")  # fmt: skip
def show(request: Req, reservation: Name) -> Response[api.ReservationView]:
    return read(request, lambda tx, caller: _views(tx, [reservations.show(tx, caller, reservation)])[0])


@post("/reservations/{reservation:str}/cancel", opt={"action": "reservation.write"}, status_code=200,
      sync_to_thread=True, summary="Cancel: its place is everybody's again")  # fmt: skip
def cancel(request: Req, reservation: Name, data: api.Confirm) -> Response[api.ReservationView]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(_views(tx, [reservations.cancel(tx, caller, reservation, data.confirm)])[0])

    return mutate(request, work, data)


def _views(tx: Tx, items: list[Reservation]) -> list[api.ReservationView]:
    slugs = offers.slugs(tx, {item.offer_id for item in items})
    return [_view(tx, item, slugs[item.offer_id]) for item in items]


def _view(tx: Tx, item: Reservation, offer: str) -> api.ReservationView:
    machines = allocations.of_group(tx, item.group_id) if item.group_id else []
    return api.ReservationView(
        item.id,
        item.org_id,
        item.project_id,
        item.name,
        item.state,
        offer,
        item.count,
        item.owner_id,
        item.starts_at,
        item.ends_at,
        item.launch_name,
        item.trouble if item.state == "booked" else None,
        item.ready_at,
        [machine.id for machine in machines],
        list(RESERVATION.allowed(item.state)),
        item.created_at,
        item.ended_at,
    )


ROUTES: list[Any] = [book, list_reservations, show, cancel]
