"""Routes: the keys that get into a machine, and who was logged in."""

from typing import Any

from litestar import Response, get, put

from gpuaas.control.app import machine_access
from gpuaas.control.http import pages, views
from gpuaas.control.http.allocations import changed
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Cursor, Limit, Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@get(
    "/allocations/{allocation:str}/keys",
    opt={"action": "allocation.read"},
    sync_to_thread=True,
    summary="The keys that get into a machine",
)
def list_machine_keys(request: Req, allocation: Name) -> Response[api.MachineKeyPage]:
    def work(tx: Tx, caller: Caller) -> api.MachineKeyPage:
        keys, owner = machine_access.list_keys(tx, caller, allocation)
        return api.MachineKeyPage([views.machine_key(key, owner) for key in keys], None)

    return read(request, work)


@put(
    "/allocations/{allocation:str}/keys",
    opt={"action": "allocation.access"},
    status_code=202,
    sync_to_thread=True,
    summary="Swap the keys on a machine, live: sessions of keys that are not listed end",
)
def set_machine_keys(request: Req, allocation: Name, data: api.MachineKeys) -> Response[api.Changed]:
    def work(tx: Tx, caller: Caller) -> Result:
        return changed(tx, *machine_access.set_keys(tx, caller, allocation, data.keys))

    return mutate(request, work, data)


@get(
    "/allocations/{allocation:str}/sessions",
    opt={"action": "allocation.read"},
    sync_to_thread=True,
    summary="Who is and was logged in on a machine, newest first",
)
def list_sessions(
    request: Req, allocation: Name, limit: Limit = 100, cursor: Cursor = None
) -> Response[api.SessionPage]:
    after = pages.position(cursor)

    def work(tx: Tx, caller: Caller) -> api.SessionPage:
        items, more = pages.cut(machine_access.list_sessions(tx, caller, allocation, after, limit + 1), limit)
        last = items[-1][0] if more else None
        cursor = pages.encode(last.heard_at, last.session) if last else None
        return api.SessionPage([views.session(login, user) for login, user in items], cursor)

    return read(request, work)


ROUTES: list[Any] = [list_machine_keys, set_machine_keys, list_sessions]
