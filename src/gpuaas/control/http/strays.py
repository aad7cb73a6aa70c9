"""Routes: machines that a node has and a restored database does not know, for operators."""

from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import strays
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Name
from gpuaas.model.node import Stray
from gpuaas.wire import api

ALL = "/nodes/{node:str}/strays"


@get(
    ALL,
    opt={"action": "node.read"},
    sync_to_thread=True,
    summary="Machines that a node has and a restored database does not know",
)
def list_strays(request: Req, node: Name) -> Response[api.StrayPage]:
    return read(
        request,
        lambda tx, caller: api.StrayPage([_view(*found) for found in strays.list_strays(tx, caller, node)], None),
    )


@post(
    ALL + "/{stray:str}/remove",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Have a node delete such a machine, with all its data",
)
def remove_stray(request: Req, node: Name, stray: Name, data: api.Confirm) -> Response[api.StrayView]:
    return mutate(
        request, lambda tx, caller: Result(_view(*strays.remove(tx, caller, node, stray, data.confirm))), data
    )


def _view(stray: Stray, slots: list[str]) -> api.StrayView:
    return api.StrayView(stray.id, slots, stray.seen_at, stray.removed_at)


ROUTES: list[Any] = [list_strays, remove_stray]
