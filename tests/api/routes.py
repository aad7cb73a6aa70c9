"""Every route of the OpenAPI document, as data: what the generated tests run over."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from gpuaas.control.http.application import build
from gpuaas.control.http.openapi import document
from gpuaas.control.store.readers import Readers
from gpuaas.control.store.transaction import Store, connect
from gpuaas.control.store.wakes import Wakes

MUTATIONS = ("post", "put", "patch", "delete")
Schema = dict[str, Any]


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    action: str
    path_params: tuple[str, ...]
    query_params: tuple[str, ...]
    headers: tuple[str, ...]
    body: str | None  # the name of its schema
    success: int
    streams: bool

    @property
    def mutates(self) -> bool:
        return self.method in MUTATIONS and self.action != "allocation.plan"

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path}"


@cache
def openapi() -> Schema:
    """Needs no database: nothing connects before the first request."""
    nowhere = "postgresql+psycopg://nobody@/nowhere"
    store = Store(connect(nowhere))
    return document(build(store, Wakes(nowhere), Readers(store, nowhere)))


@cache
def routes() -> tuple[Route, ...]:
    return tuple(
        _route(path, method, operation)
        for path, methods in openapi()["paths"].items()
        for method, operation in methods.items()
    )


def _route(path: str, method: str, operation: Schema) -> Route:
    params = operation.get("parameters", [])
    named = {place: tuple(p["name"] for p in params if p["in"] == place) for place in ("path", "query", "header")}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = content["schema"]["$ref"].rpartition("/")[2] if content else None
    success = next(status for status in operation["responses"] if status.startswith("2"))
    streams = "text/event-stream" in operation["responses"][success].get("content", {})
    return Route(
        method,
        path,
        operation["x-permission"],
        named["path"],
        named["query"],
        named["header"],
        body,
        int(success),
        streams,
    )


def schema(name: str) -> Schema:
    found: Schema = openapi()["components"]["schemas"][name]
    return found


def input_schemas() -> dict[str, Schema]:
    """Schemas of request bodies, with those they contain."""
    found: dict[str, Schema] = {}
    wanted = [route.body for route in routes() if route.body]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = schema(name)
            wanted += _references(found[name])
    return found


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        here = [part["$ref"].rpartition("/")[2]] if "$ref" in part else []
        return here + [name for value in part.values() for name in _references(value)]
    if isinstance(part, list):
        return [name for value in part for name in _references(value)]
    return []
