"""The ASGI application: routes, errors, limits, the OpenAPI document. Refuses to start with an unguarded route."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from litestar import Litestar, Request, Response, Router, get
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import NotFoundException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from gpuaas import __version__
from gpuaas.control.config import RATES, Oidc, Rates
from gpuaas.control.http import (
    allocation_runtimes,
    allocations,
    asyncapi,
    billing,
    break_glass,
    doctor,
    feeds,
    history,
    identity,
    invitations,
    leases,
    machine_access,
    metrics,
    nodes,
    openapi,
    org_members,
    org_webhooks,
    project_runtimes,
    prometheus,
    queue,
    quotas,
    reservations,
    runtime_bundles,
    runtime_images,
    service_accounts,
    strays,
    usage,
    users,
    webhooks,
)
from gpuaas.control.http.body import StrictRequest
from gpuaas.control.http.endpoint import header
from gpuaas.control.http.limited import limited
from gpuaas.control.http.limits import Limiter
from gpuaas.control.http.oidc import routes as oidc_routes
from gpuaas.control.http.oidc import settings as oidc_settings
from gpuaas.control.http.oidc.provider import Provider
from gpuaas.control.http.pace import Pace
from gpuaas.control.http.problems import HANDLERS
from gpuaas.control.http.streams import routes as streams
from gpuaas.control.store import migrate
from gpuaas.control.store.images import Images
from gpuaas.control.store.readers import Readers
from gpuaas.control.store.transaction import Store
from gpuaas.control.store.wakes import Wakes
from gpuaas.kit import traces
from gpuaas.kit.errors import Problem
from gpuaas.kit.log import bound, often
from gpuaas.model.permission import PERMISSIONS
from gpuaas.wire import api

log = logging.getLogger(__name__)

PREFIX = "/api/v1"
CORRELATION = re.compile(r"^[A-Za-z0-9._-]{8,64}$")
SECURITY_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


@get("/healthz", opt={"action": "health"}, sync_to_thread=False, summary="The process is alive")
def healthz() -> api.Health:
    return api.Health("ok", __version__)


@get("/readyz", opt={"action": "health"}, sync_to_thread=True, summary="The database answers and its schema fits")
def readyz(request: Request[Any, Any, Any]) -> api.Health:
    store: Store = request.app.state.store
    found, fits = store.transact(lambda tx: (migrate.current(tx.conn), migrate.fits(tx.conn)))
    if not fits:
        raise Problem(
            "schema",
            503,
            f"The database has schema {found}, this server needs {migrate.head()}.",
            "Restart a server: it migrates.",
            extra={"retry_after": 5},
        )
    return api.Health("ready", __version__)


@get("/openapi.json", opt={"action": "health"}, sync_to_thread=True, include_in_schema=False)
def document(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    return Response(openapi.document(request.app), media_type="application/json")


@get("/asyncapi.json", opt={"action": "health"}, sync_to_thread=True, include_in_schema=False)
def events_document() -> Response[dict[str, Any]]:
    return Response(asyncapi.document(), media_type="application/json")


def correlated(app: ASGIApp) -> ASGIApp:
    """Every request has a correlation id: the caller's, or a new one; it is on the response and on every log line."""

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        given = header(scope, b"x-correlation-id")
        store: Store = scope["litestar_app"].state.store
        correlation_id = given if CORRELATION.match(given) else store.ids.new("cr")
        scope["state"]["correlation_id"] = correlation_id

        started = time.monotonic()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                took = time.monotonic() - started
                often(log, "request", _line(scope, message["status"], took))
                labels = {"class": _class(scope), "status": f"{message['status'] // 100}xx"}
                store.meters.observe("api_request_seconds", took, **labels)
                _trace(scope, message["status"], took, correlation_id)
                headers = [*message.get("headers", []), (b"x-correlation-id", correlation_id.encode())]
                named = {name for name, _ in headers}
                message["headers"] = headers + [pair for pair in SECURITY_HEADERS if pair[0] not in named]
            await send(message)

        with bound(correlation_id=correlation_id):
            await app(scope, receive, sending)

    return handler


def _trace(scope: Scope, status: int, took: float, correlation_id: str) -> None:
    if not traces.enabled():
        return
    handler: Any = scope.get("route_handler")
    route = str(scope.get("path_template") or "") if handler is not None else ""
    name = f"{scope.get('method')} {route or 'no route'}"
    ended = time.time()
    failed = f"status {status}" if status >= 500 else ""
    method = str(scope.get("method"))
    traces.record(
        name, correlation_id, ended - took, ended, failed=failed,
        http__request__method=method, http__route=route, http__response__status_code=status,
    )  # fmt: skip


def _class(scope: Scope) -> str:
    """Few, however many routes there are: read, write, follow (a stream's beginning), public, none (no such route)."""
    handler: Any = scope.get("route_handler")
    action = handler.opt.get("action") if handler is not None else None
    if action is None:
        return "none"
    if PERMISSIONS[action].scope == "public":
        return "public"
    if handler.media_type == "text/event-stream":
        return "follow"
    return "read" if scope.get("method") in ("GET", "HEAD") or action in openapi.READING_POSTS else "write"


def _line(scope: Scope, status: int, seconds: float) -> dict[str, Any]:
    return {"method": scope.get("method"), "path": scope["path"], "status": status, "ms": round(seconds * 1000, 1)}


class Application(Litestar):
    """Without the plugins for libraries that we do not use: where pydantic is installed, it alone takes 13 MB."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


class _Routes(Router):
    """Used once: Litestar would copy every handler in it, deeply, which takes as long as making them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Routes":
        return self


def build(
    store: Store,
    wakes: Wakes,
    readers: Readers,
    sockets: Sequence[Any] = (),
    lifespan: Sequence[Callable[[Litestar], AbstractAsyncContextManager[None]]] = (),
    advertise_url: str = "",
    metrics_token: str = "",
    state_dir: Path = Path("/"),
    sweeps: Mapping[str, float] | None = None,
    rates: Rates = RATES,
    oidc: Oidc | None = None,
    runtime_images_dir: Path | None = None,
) -> Litestar:
    of_machines = [*allocations.ROUTES, *machine_access.ROUTES, *leases.ROUTES, *metrics.ROUTES, *streams.ROUTES]
    of_machines += [*quotas.ROUTES, *queue.ROUTES, *reservations.ROUTES]
    of_machines += [*runtime_bundles.ROUTES, *project_runtimes.ROUTES, *runtime_images.ROUTES]
    of_machines += allocation_runtimes.ROUTES
    of_people = [*identity.ROUTES, *users.ROUTES, *service_accounts.ROUTES, *break_glass.ROUTES]
    of_people += [*org_members.ROUTES, *invitations.ROUTES, *oidc_routes.ROUTES, *oidc_settings.ROUTES]
    of_cost = [*usage.ROUTES, *billing.ROUTES]
    out = [*history.ROUTES, *feeds.ROUTES, *webhooks.ROUTES, *org_webhooks.ROUTES]
    routes = [*of_people, *of_machines, *of_cost, *out, *nodes.ROUTES, *strays.ROUTES, *doctor.ROUTES]
    app = Application(
        route_handlers=[
            healthz,
            readyz,
            prometheus.scrape,
            *oidc_routes.BROWSER_ROUTES,
            _Routes(PREFIX, route_handlers=[document, events_document, *routes, *sockets]),
        ],
        state=State(
            {
                "store": store,
                "wakes": wakes,
                "readers": readers,
                "streams": streams.Streams(advertise_url),
                "metrics_token": metrics_token,
                "state_dir": state_dir,
                "images": Images(runtime_images_dir or state_dir / "runtime-images"),
                "sweeps": sweeps or {},
                "limiter": Limiter(store.clock, rates),
                "oidc": Provider(oidc, store.clock) if oidc else None,
                "pace": Pace(store.clock, off=not rates.login),
            }
        ),
        exception_handlers=HANDLERS,
        request_class=StrictRequest,
        request_max_body_size=api.MAX_BODY_BYTES,
        lifespan=list(lifespan),
        openapi_config=_openapi(),
        logging_config=None,
        debug=False,
    )
    _refuse_unguarded(app)
    app.asgi_handler = correlated(limited(app.asgi_handler))  # a middleware would miss requests that find no route
    return app


def _openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="GPUaaS",
        version=__version__,
        description="GPU machines as a service. Errors are RFC 9457 problem details with a stable `code`.",
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        security=[{"token": []}],
        # Litestar's own pages; the document is served above.
        openapi_router=Router(
            f"{PREFIX}/openapi", route_handlers=[], opt={"action": "health"}, include_in_schema=False, guards=[_hidden]
        ),
        render_plugins=[JsonRenderPlugin()],
    )


def _hidden(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    raise NotFoundException


def _refuse_unguarded(app: Litestar) -> None:
    for route in app.routes:
        found: Any = route
        for handler in getattr(found, "route_handlers", None) or [found.route_handler]:
            if getattr(handler, "http_methods", None) == {"OPTIONS"}:
                continue  # Litestar's own answer, which reveals only the methods
            action = handler.opt.get("action")
            if action not in PERMISSIONS:
                raise RuntimeError(f"the route {route.path} names no action of the permission table: {action}")
