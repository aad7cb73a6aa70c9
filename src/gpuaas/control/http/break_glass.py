"""Routes: an operator breaks the glass; everybody concerned sees it, and may end it."""

from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import break_glass as app
from gpuaas.control.http import pages, views
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Cursor, Limit, Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@post(
    "/break-glass",
    opt={"action": "break_glass.open"},
    sync_to_thread=True,
    summary="Act on a tenant's objects for a while; says why, and the tenant is told (operators)",
)
def open_break_glass(request: Req, data: api.OpenBreakGlass) -> Response[api.BreakGlassView]:
    def work(tx: Tx, caller: Caller) -> Result:
        made = app.open_(tx, caller, data.org, data.reason, data.duration_seconds)
        return Result(views.break_glass(*made, tx.now), 201)

    return mutate(request, work, data)


@get("/break-glass", opt={"action": "break_glass.read"}, sync_to_thread=True, summary="Every break-glass, newest first")
def list_break_glass(request: Req, limit: Limit = 100, cursor: Cursor = None) -> Response[api.BreakGlassPage]:
    after = pages.position(cursor)
    return read(request, lambda tx, caller: _page(tx, app.list_all(tx, caller, after, limit + 1), limit))


@post(
    "/break-glass/{entry:str}/end", opt={"action": "break_glass.open"}, status_code=204, sync_to_thread=True,
    summary="End a break-glass before its time (operators)",
)  # fmt: skip
def end_break_glass(request: Req, entry: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        app.end(tx, caller, entry)
        return Result(None, 204)

    return mutate(request, work)


@get(
    "/orgs/{org:str}/break-glass",
    opt={"action": "org.read"},
    sync_to_thread=True,
    summary="Which operators acted, or may act, on an organisation's objects, and why",
)
def list_of_org(request: Req, org: Name, limit: Limit = 100, cursor: Cursor = None) -> Response[api.BreakGlassPage]:
    after = pages.position(cursor)
    return read(request, lambda tx, caller: _page(tx, app.list_for_tenant(tx, caller, org, after, limit + 1), limit))


@post(
    "/orgs/{org:str}/break-glass/{entry:str}/end",
    opt={"action": "org.break_glass"},
    status_code=204,
    sync_to_thread=True,
    summary="End an operator's break-glass into your organisation",
)
def end_for_org(request: Req, org: Name, entry: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        app.end_for_tenant(tx, caller, org, entry)
        return Result(None, 204)

    return mutate(request, work)


def _page(tx: Tx, found: list[app.Shown], limit: int) -> api.BreakGlassPage:
    items, more = pages.cut(found, limit)
    cursor = pages.encode(items[-1][0].created_at, items[-1][0].id) if more else None
    return api.BreakGlassPage([views.break_glass(*item, tx.now) for item in items], cursor)


ROUTES: list[Any] = [open_break_glass, list_break_glass, end_break_glass, list_of_org, end_for_org]
