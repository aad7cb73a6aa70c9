"""Bad input on every field of every body, made from the schemas: always refused with 400 or 422, never stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.fill import OWN, Request, fill
from api.routes import Route, input_schemas, routes, schema
from api.world import Person, World
from gpuaas.model.permission import PERMISSIONS

WITH_BODY = [route for route in routes() if route.body]
BAD_TEXT = {
    "NUL": "a\x00b",
    "control": "a\x1bb",
    "newline": "ab\n",
    "delete": "a\x7fb",
    "C1 control": "a\x85b",
    "right-to-left": "a\u202eb",
    "line separator": "a\u2028b",
    "too long": "a" * 20_000,
    "a number": 7,
    "a list": ["a"],
    "an object": {"a": "b"},
    "a truth": True,
}
BAD_NUMBER = {
    "huge": 10**40,
    "beyond 64 bits": 2**64,
    "negative": -1,
    "minus huge": -(2**63) - 1,
    "fraction": 1.5,
    "text": "1",
    "truth": True,
    "a list": [1],
}
BAD_TRUTH = {"text": "true", "number": 1, "nothing": None}


def bad_values(part: dict[str, Any]) -> dict[str, Any]:
    """For one field, by its type."""
    kinds = {part.get("type"), *(choice.get("type") for choice in part.get("oneOf", []))}
    if "string" in kinds:
        return BAD_TEXT
    if "integer" in kinds:
        return BAD_NUMBER
    if "boolean" in kinds:
        return {why: value for why, value in BAD_TRUTH.items() if value is not None or "null" not in kinds}
    if "array" in kinds:
        values = {f"item {name}": [value] for name, value in bad_values(part.get("items", {"type": "string"})).items()}
        return {**values, "text": "x", "object": {}, "too many": [0] * 5000}
    if names := [choice["$ref"] for choice in [part, *part.get("oneOf", [])] if "$ref" in choice]:
        return {"text": "x", "number": 1, "list": [], **nested(names[0].rpartition("/")[2])}
    if part.get("additionalProperties") == {}:  # anything: what is in it is checked by what it is for
        return {"text": "x", "list": [1], "nothing in it": {}, "something else": {"x": 1}}
    if isinstance(inner := part.get("additionalProperties"), dict):
        values = {f"value {why}": {"h100-1": value} for why, value in bad_values(inner).items()}
        return {**values, "text": "x", "list": [1]}
    raise AssertionError(f"say in bad_values what is bad for {part}")


def nested(name: str) -> dict[str, Any]:
    """An object that is valid but for one field; required ones beside it are left out, which is bad enough."""
    return {
        f"{field} {why}": {field: value}
        for field, part in schema(name)["properties"].items()
        for why, value in bad_values(part).items()
    }


def spoiled(request: Request, route: Route) -> Iterator[tuple[str, bytes]]:
    body = request.json or {}
    for field, part in schema(route.body or "")["properties"].items():
        for why, value in bad_values(part).items():
            yield f"{field}: {why}", json.dumps({**body, field: value}).encode()
        if field in body and "string" in str(part.get("type")):
            for why, raw in {"a lone surrogate": b'"a\\ud800b"', "not UTF-8": b'"a\xed\xa0\x80b"'}.items():
                yield f"{field}: {why}", json.dumps({**body, field: "@"}).encode().replace(b'"@"', raw)
    for name in schema(route.body or "").get("required", []):
        yield f"{name}: left out", json.dumps({key: value for key, value in body.items() if key != name}).encode()
    for why, raw in {"nothing": b"", "null": b"null", "list": b"[]", "text": b'"x"', "half": b'{"a":'}.items():
        if not (why == "nothing" and not schema(route.body or "").get("required")):
            yield f"the body: {why}", raw
    yield "unknown field", json.dumps({**body, "surprise": 1}).encode()
    yield "too deep", b"[" * 100_000


def who(world: World, route: Route) -> Person:
    platform = PERMISSIONS[route.action].scope == "platform"
    return world.people["platform_admin" if platform else "tenant_admin"]


@pytest.mark.parametrize("route", WITH_BODY, ids=str)
def test_bad_input_is_refused(world: World, http: httpx.Client, route: Route) -> None:
    person = who(world, route)
    request = fill(world, route, person, OWN)
    assert request is not None
    headers = {**person.headers, "Content-Type": "application/json"}
    failures, tried = [], 0
    for why, raw in spoiled(request, route):
        tried += 1
        answer = http.request(request.method, request.path, content=raw, headers=headers)
        if answer.status_code not in (400, 422):
            failures.append(f"{why}: {answer.status_code} {answer.text[:200]}")
    assert not failures, "\n".join(failures)
    assert tried > 8
    assert http.request(request.method, request.path, json=request.json, headers=headers).status_code == route.success


def test_every_input_schema_is_reached() -> None:
    assert {route.body for route in WITH_BODY} <= set(input_schemas())


@pytest.mark.parametrize(
    "bad", ["%00", "%0a", "a%0a", "%ff", "%ed%a0%80", "a%20b", "-a", "a" * 300, "%e2%80%ae", "%2e%2e", "'"]
)
def test_bad_names_in_paths_are_refused(world: World, http: httpx.Client, bad: str) -> None:
    headers = world.people["platform_admin"].headers
    for route in routes():
        if route.path_params and route.method == "get":
            path = route.path
            for name in route.path_params:
                path = path.replace("{" + name + "}", bad)
            answer = http.get(path, headers=headers)
            assert answer.status_code in (404, 422), f"{route}: {answer.text}"
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("bad", ["%00", "a%0a", "%ff", "%ed%a0%80", "a%20b", "a" * 300, "%e2%80%ae", "'"])
def test_bad_words_in_queries_are_refused(world: World, http: httpx.Client, bad: str) -> None:
    headers = world.people["platform_admin"].headers
    for route in routes():
        for name in route.query_params:
            answer = http.get(f"{route.path}?{name}={bad}", headers=headers)
            assert answer.status_code == 422, f"{route} {name}: {answer.text}"
