"""Asks the limiter before a request is worked on, whatever it is for. Only the question whether we live is free."""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from gpuaas.control.http.endpoint import address_of, bearer
from gpuaas.control.http.limits import Limiter
from gpuaas.control.http.problems import respond
from gpuaas.kit.errors import Problem

FREE = frozenset({"/healthz"})
NODES = frozenset({"/api/v1/node-link", "/api/v1/nodes/join", "/api/v1/streams"})
IMAGES = "/api/v1/runtime-images/"


def limited(app: ASGIApp) -> ASGIApp:
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        limiter: Limiter = scope["litestar_app"].state.limiter
        try:
            if scope["path"] not in FREE:
                node = scope["path"] in NODES or scope["path"].startswith(IMAGES)
                limiter.admit(address_of(scope), bearer(scope), node=node)
        except Problem as problem:
            await _refuse(ASGIConnection(scope), send, problem)
        else:
            await app(scope, receive, send)

    return handler


async def _refuse(connection: ASGIConnection[Any, Any, Any, Any], send: Send, problem: Problem) -> None:
    made = respond(connection, problem)
    headers = {"Content-Type": str(made.media_type), **made.headers}
    kind = "websocket.http.response" if connection.scope["type"] == ScopeType.WEBSOCKET else "http.response"
    start: Any = {
        "type": f"{kind}.start",
        "status": problem.status,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    body: Any = {"type": f"{kind}.body", "body": made.content}
    await send(start)
    await send(body)
