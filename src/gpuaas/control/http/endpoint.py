"""How every route runs: who is asking, one transaction, one answer.

Fails closed: a route whose declared action was not checked by the app layer, or a mutation that left no audit entry,
is rolled back and answered with 500.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.types import Receive, Scope, Send

from gpuaas.control.app import access, idempotency
from gpuaas.control.app.sessions import authenticate
from gpuaas.control.http.limits import Limiter
from gpuaas.control.store.idempotency import Answer
from gpuaas.control.store.readers import Readers
from gpuaas.control.store.transaction import Along, Store, Tx
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller

Req = Request[Any, Any, Any]
T = TypeVar("T")
KEY = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True)
class Result:
    """What a route answers. `secret`: shown once, never kept for a retry."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: bool = False


Work = Callable[[Tx, Caller], Result]


def store_of(request: ASGIConnection[Any, Any, Any, Any]) -> Store:
    store: Store = request.app.state.store
    return store


def limiter_of(request: ASGIConnection[Any, Any, Any, Any]) -> Limiter:
    limiter: Limiter = request.app.state.limiter
    return limiter


def correlation_of(request: ASGIConnection[Any, Any, Any, Any]) -> str:
    return str(request.scope["state"].get("correlation_id", ""))


def read(request: Req, work: Callable[[Tx, Caller], Any]) -> Response[Any]:
    """A GET: nothing is written but the token's time of last use."""
    return Found(read_as(request, lambda tx, caller: msgspec.json.encode(work(tx, caller))))


async def read_here(request: Req, work: Callable[[Tx, Caller], Any], along: Along) -> Response[Any]:
    """The same on the event loop, for what is asked often and is quickly done (store/readers.py).

    `along`: what the work is going to ask, to be asked in one statement with who is asking.
    """
    readers: Readers = request.app.state.readers
    look = _as_caller(request, lambda tx, caller: msgspec.json.encode(work(tx, caller)), along)
    return Found(await readers.look(look, correlation_id=correlation_of(request)))


def read_as(request: Req, work: Callable[[Tx, Caller], T]) -> T:
    """The same for what is not answered in JSON."""
    return store_of(request).look(_as_caller(request, work), correlation_id=correlation_of(request))


def _as_caller(request: Req, work: Callable[[Tx, Caller], T], along: Along | None = None) -> Callable[[Tx], T]:
    def run(tx: Tx) -> T:
        tx.along = along
        found = work(tx, signed_in(tx, request))
        _checked(tx, request)
        return found

    return run


def mutate(request: Req, work: Work, data: msgspec.Struct | None = None) -> Response[Any]:
    key = request.headers.get("idempotency-key")
    if key is not None and not KEY.fullmatch(key):
        raise Problem("invalid_request", 422, "The Idempotency-Key must be 1 to 128 ASCII characters, without spaces.")
    body = msgspec.json.encode(data) if data is not None else b""
    hashed = idempotency.request_hash(request.method, request.url.path, body)

    def run(tx: Tx) -> tuple[Answer, bytes]:
        caller = signed_in(tx, request)
        shown, done = b"", False

        def once() -> Answer:
            nonlocal shown, done
            result, done = work(tx, caller), True
            _checked(tx, request)
            tx.expect_one_audit_entry()
            shown = b"" if result.body is None else msgspec.json.encode(result.body)
            body = None if result.secret else shown
            return Answer(hashed, result.status, dict(result.headers), body, tx.audited_project)

        if key is None:
            return once(), shown
        kept = idempotency.once(tx, caller.user_id, key, hashed, once)
        if done:
            return kept, shown
        access.still(tx, caller, request.route_handler.opt["action"], kept.project_id)
        return kept, bytes(kept.body or b"")

    kept, shown = store_of(request).transact(run, correlation_id=correlation_of(request))
    return answer(kept.status, shown, kept.headers)


def public(request: Req, work: Callable[[Tx], Result]) -> Response[Any]:
    """A route that needs no token."""

    def run(tx: Tx) -> Result:
        result = work(tx)
        _checked(tx, request)
        return result

    result = store_of(request).transact(run, correlation_id=correlation_of(request))
    return answer(result.status, msgspec.json.encode(result.body), result.headers)


def signed_in(tx: Tx, request: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    secret = bearer(request.scope)
    if not secret:
        raise Problem(
            "unauthenticated", 401, "This needs a token.", "Send `Authorization: Bearer ...`; get one by logging in."
        )
    limiter = limiter_of(request)
    try:
        caller = authenticate(tx, secret)
    except Problem:
        limiter.doubt(secret)
        raise
    limiter.vouch(address_of(request.scope), secret)
    tx.actor = caller.user_id
    return caller


def address_of(scope: Scope) -> str:
    """Where the caller comes from, as far as the connection (or a trusted proxy) says."""
    client = scope["client"]
    return client[0] if client else ""


def header(scope: Scope, name: bytes) -> str:
    """The first of this name; empty when there is none. `request.headers` would take all of them apart."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def bearer(scope: Scope) -> str:
    """What stands for the caller; empty when there is nothing of the kind."""
    scheme, _, secret = header(scope, b"authorization").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


class Found(Response[bytes]):
    """JSON that was read, as it is sent. Litestar would go through everything that a response may have, each time."""

    __slots__ = ("_body",)

    def __init__(self, body: bytes) -> None:
        self._body = body

    def to_asgi_response(self, app: Any, request: Any, **rest: Any) -> Any:
        return self._send

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self._body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


def answer(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Response[Any]:
    return Response(content=body, status_code=status, headers=dict(headers or {}), media_type="application/json")


def _checked(tx: Tx, request: Req) -> None:
    action = request.route_handler.opt["action"]
    if action not in tx.authorized:
        raise AssertionError(f"{request.method} {request.url.path} answered without checking {action}")
