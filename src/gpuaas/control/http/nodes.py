"""Routes: the fleet, for operators; and the door through which nodes join."""

from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import nodes
from gpuaas.control.http import views
from gpuaas.control.http.endpoint import Req, Result, mutate, public, read
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@post("/nodes/join-tokens", opt={"action": "node.write"}, sync_to_thread=True, summary="Make a one-time join token")
def create_join_token(request: Req, data: api.NewJoinToken) -> Response[api.JoinToken]:
    def work(tx: Tx, caller: Caller) -> Result:
        made = nodes.create_join_token(tx, caller, data.org, data.approve_slots, data.lifetime_seconds)
        return Result(api.JoinToken(*made), 201, secret=True)

    return mutate(request, work, data)


@post("/nodes/join", opt={"action": "node.join"}, sync_to_thread=True, summary="A node joins with a one-time token")
def join(request: Req, data: api.Join) -> Response[api.Joined]:
    def work(tx: Tx) -> Result:
        node = nodes.join(tx, data.token, data.name, data.public_key, data.signature)
        return Result(api.Joined(node.id, node.name), 201)

    return public(request, work)


@get("/nodes", opt={"action": "node.read"}, sync_to_thread=True, summary="All nodes (operators)")
def list_nodes(request: Req) -> Response[api.NodePage]:
    return read(
        request,
        lambda tx, caller: api.NodePage(
            [views.node(*nodes.show_node(tx, caller, node.id)) for node in nodes.list_nodes(tx, caller)], None
        ),
    )


@get("/nodes/{node:str}", opt={"action": "node.read"}, sync_to_thread=True, summary="One node with its slots")
def show_node(request: Req, node: Name) -> Response[api.NodeView]:
    return read(request, lambda tx, caller: views.node(*nodes.show_node(tx, caller, node)))


@post(
    "/nodes/{node:str}/approve",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Approve slots: only approved ones are ever given out",
)
def approve(request: Req, node: Name, data: api.ApproveSlots) -> Response[api.NodeView]:
    return mutate(
        request, lambda tx, caller: Result(views.node(*nodes.approve(tx, caller, node, list(data.slots)))), data
    )


@post(
    "/nodes/{node:str}/slots/{slot:str}/return",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Give a quarantined slot back to placement",
)
def return_slot(request: Req, node: Name, slot: Name) -> Response[api.NodeView]:
    return mutate(request, lambda tx, caller: Result(views.node(*nodes.return_slot(tx, caller, node, slot))))


ROUTES: list[Any] = [create_join_token, join, list_nodes, show_node, approve, return_slot]
