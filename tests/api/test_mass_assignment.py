"""Nobody sets what is not theirs to set: every name that the product knows, sent as an extra field, is refused."""

import httpx
import pytest
from sqlalchemy import text

from api.fill import OWN, fill
from api.routes import Route, openapi, routes, schema
from api.test_inputs import who
from api.world import World
from gpuaas.control.store.tables import metadata

WITH_BODY = [route for route in routes() if route.body]


def known_names() -> set[str]:
    """Every field that comes out of the API and every column of the database."""
    out = {name for part in openapi()["components"]["schemas"].values() for name in part["properties"]}
    return out | {column.name for table in metadata.tables.values() for column in table.columns}


def counts(world: World) -> dict[str, int]:
    def work(tx: object) -> dict[str, int]:
        names = [name for name in metadata.tables if name not in ("idempotency_keys", "tokens")]
        return {
            name: tx.conn.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()  # type: ignore[attr-defined]
            for name in names
        }

    return world.store.transact(work)


@pytest.mark.parametrize("route", WITH_BODY, ids=str)
def test_extra_fields_are_refused(world: World, http: httpx.Client, route: Route) -> None:
    person = who(world, route)
    request = fill(world, route, person, OWN)
    assert request is not None
    extra = known_names() - set(schema(route.body or "")["properties"])
    assert len(extra) > 80
    before = counts(world)
    for name in sorted(extra):
        answer = http.request(
            request.method, request.path, json={**(request.json or {}), name: "x"}, headers=person.headers
        )
        assert answer.status_code == 422, f"{name}: {answer.text}"
        assert name in answer.json()["detail"]
    assert counts(world) == before


def test_extra_fields_in_nested_parts_are_refused(world: World, http: httpx.Client) -> None:
    headers = world.people["editor"].headers
    body = {"name": "nested", "offer": "b200-1", "wait": True, "project": world.own.project.id}
    storage = {"volume": "v", "path": "/v", "owner_id": "x"}
    for part in ({"access": {"owner_id": "x"}}, {"lease": {"state": "x"}}, {"storage": [storage]}):
        answer = http.post("/api/v1/allocations", json={**body, **part}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text


def test_answers_show_what_the_document_says_and_nothing_else(world: World, http: httpx.Client) -> None:
    """No column that a view does not name, however deep."""
    for route in routes():
        person = who(world, route)
        if route.method != "get" or route.streams:
            continue
        request = fill(world, route, person, OWN)
        assert request is not None
        answer = http.get(request.path, params=request.params, headers=person.headers)
        content = openapi()["paths"][route.path]["get"]["responses"]["200"]["content"]
        if "application/json" in content:
            compare(answer.json(), content["application/json"]["schema"], str(route))


def compare(value: object, part: dict[str, object], where: str) -> None:
    if "$ref" in part:
        part = schema(str(part["$ref"]).rpartition("/")[2])
    if isinstance(value, dict) and "properties" in part:
        properties: dict[str, dict[str, object]] = part["properties"]  # type: ignore[assignment]
        assert set(value) <= set(properties), f"{where}: {set(value) - set(properties)}"
        for name, inner in value.items():
            compare(inner, properties[name], f"{where}.{name}")
    if isinstance(value, list) and "items" in part:
        for inner in value:
            compare(inner, part["items"], where)  # type: ignore[arg-type]
