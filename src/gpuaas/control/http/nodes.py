"""Routes: the fleet, for operators; and the door through which nodes join."""

from typing import Any

from litestar import Response, get, post, put

from gpuaas.control.app import nodes, slots
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


@post(
    "/nodes/{node:str}/drain",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Place nothing new on a node; who is there is told, and released at the deadline",
)
def drain(request: Req, node: Name, data: api.DrainRequest) -> Response[api.NodeView]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(views.node(*slots.drain(tx, caller, node, None, data.reason, data.deadline_seconds)))

    return mutate(request, work, data)


@post(
    "/nodes/{node:str}/undrain",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Use a drained node again",
)
def undrain(request: Req, node: Name) -> Response[api.NodeView]:
    return mutate(request, lambda tx, caller: Result(views.node(*slots.undrain(tx, caller, node, None))))


@post(
    "/nodes/{node:str}/slots/{slot:str}/drain",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Place nothing new on a slot; who is there is told, and released at the deadline",
)
def drain_slot(request: Req, node: Name, slot: Name, data: api.DrainRequest) -> Response[api.NodeView]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(views.node(*slots.drain(tx, caller, node, slot, data.reason, data.deadline_seconds)))

    return mutate(request, work, data)


@post(
    "/nodes/{node:str}/slots/{slot:str}/undrain",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Use a drained slot again",
)
def undrain_slot(request: Req, node: Name, slot: Name) -> Response[api.NodeView]:
    return mutate(request, lambda tx, caller: Result(views.node(*slots.undrain(tx, caller, node, slot))))


@post(
    "/nodes/{node:str}/slots/{slot:str}/quarantine",
    opt={"action": "node.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Set a slot aside until it is returned; whoever has it keeps it",
)
def quarantine_slot(request: Req, node: Name, slot: Name, data: api.Quarantine) -> Response[api.NodeView]:
    return mutate(
        request, lambda tx, caller: Result(views.node(*slots.quarantine(tx, caller, node, slot, data.reason))), data
    )


@put(
    "/nodes/{node:str}/pool",
    opt={"action": "node.write"},
    sync_to_thread=True,
    summary="Give a node to one tenant only, or to everybody; refused while others have machines on it",
)
def set_pool(request: Req, node: Name, data: api.Pool) -> Response[api.NodeView]:
    return mutate(request, lambda tx, caller: Result(views.node(*slots.set_pool(tx, caller, node, data.tenant))), data)


UNDER_HAND: list[Any] = [drain, undrain, drain_slot, undrain_slot, quarantine_slot, set_pool]
ROUTES: list[Any] = [*UNDER_HAND, create_join_token, join, list_nodes, show_node, approve, return_slot]
