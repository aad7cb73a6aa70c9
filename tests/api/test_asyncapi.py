"""The AsyncAPI document: its references lead somewhere, and what really happens is what it says."""

from typing import Any

import httpx
import jsonschema_rs

from api.test_document import parts
from api.world import World
from gpuaas.control.http.asyncapi import document
from gpuaas.model.event import ALWAYS, EVENTS


def test_it_is_served_to_everybody(http: httpx.Client) -> None:
    answer = http.get("/api/v1/asyncapi.json")
    assert answer.status_code == 200
    assert answer.json() == document()
    assert answer.json()["asyncapi"] == "3.0.0"


def test_references_lead_somewhere() -> None:
    found: Any = document()
    for where, part in parts(found):
        if isinstance(part.get("$ref"), str):
            there: Any = found
            for step in part["$ref"].removeprefix("#/").split("/"):
                assert step in there, f"{where}: {part['$ref']}"
                there = there[step]


def test_payloads_are_json_schemas() -> None:
    found = document()
    for type, message in found["components"]["messages"].items():
        jsonschema_rs.meta.validate(message["payload"])
        assert message["title"], type


def test_what_happened_is_what_the_document_says(world: World, http: httpx.Client) -> None:
    """Every event of a populated server fits the message of its type, and has no field that is not listed."""
    found = document()
    checked = set()
    for name, place in (("editor", world.own), ("neighbour", world.sibling), ("foreigner", world.foreign)):
        query = {"project": place.project.id, "limit": "500"}
        for event in http.get("/api/v1/events", params=query, headers=world.people[name].headers).json()["items"]:
            payload = found["components"]["messages"][event["type"]]["payload"]
            validator = jsonschema_rs.validator_for({**payload, "components": found["components"]})
            validator.validate(event)
            known = EVENTS[event["type"]]
            assert known.open or set(event["data"]) <= {*known.data, *ALWAYS}, event
            checked.add(event["type"])
    assert {"allocation.active", "allocation.released", "operation.succeeded", "project.created"} <= checked
