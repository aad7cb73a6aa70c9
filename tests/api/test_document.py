"""The OpenAPI document as such: valid, complete, and with examples that fit."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from api.routes import input_schemas, openapi, routes
from gpuaas.model.permission import PERMISSIONS

BOUNDS = {"integer": {"minimum", "maximum"}, "string": {"pattern"}, "array": {"maxItems"}}


def parts(node: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in the document, with where it is."""
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from parts(value, f"{path}/{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from parts(value, f"{path}/{number}")


def test_it_is_an_openapi_document() -> None:
    document = openapi()
    assert document["openapi"].startswith("3.1")
    assert {"title", "version"} <= set(document["info"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert {"200", "201", "202", "204"} & set(operation["responses"]), f"{method} {path}"
            for response in operation["responses"].values():
                assert response["description"]
            templated = {name for name in path.split("/") if name.startswith("{")}
            declared = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert templated == {"{" + name + "}" for name in declared}, path


def test_references_lead_somewhere() -> None:
    document = openapi()
    for where, part in parts(document):
        if isinstance(part.get("$ref"), str):
            found: Any = document
            for step in part["$ref"].removeprefix("#/").split("/"):
                assert step in found, f"{where}: {part['$ref']}"
                found = found[step]


def test_schemas_are_json_schemas() -> None:
    for name, schema in openapi()["components"]["schemas"].items():
        jsonschema_rs.meta.validate(schema)
        jsonschema_rs.validator_for({**schema, "components": openapi()["components"]})
        assert schema["type"] == "object", name


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for methods in openapi()["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names)) == len(routes())
    assert all(operation.get("summary") for methods in openapi()["paths"].values() for operation in methods.values())


def test_every_route_names_an_action_and_every_action_has_a_route() -> None:
    used = {route.action for route in routes()}
    assert used <= set(PERMISSIONS)
    sockets = {"node.link", "node.stream", "allocation.connect"}  # no part of an OpenAPI document
    assert set(PERMISSIONS) - used == set(sockets)


def test_inputs_refuse_what_they_do_not_know_and_are_bounded() -> None:
    for name, schema in input_schemas().items():
        assert schema["additionalProperties"] is False, name
        for field, part in schema["properties"].items():
            kinds = {part.get("type"), *(choice.get("type") for choice in part.get("oneOf", []))}
            for kind, bounds in BOUNDS.items():
                assert kind not in kinds or bounds <= set(part), f"{name}.{field}"


def test_examples_fit_their_schemas() -> None:
    checked = 0
    for where, part in parts(openapi()["components"]["schemas"]):
        if "examples" in part and "type" in part:
            for example in part["examples"]:
                checked += 1
                assert jsonschema_rs.is_valid({**part, "components": openapi()["components"]}, example), (
                    f"{where}: {example}"
                )
    assert checked >= 5
