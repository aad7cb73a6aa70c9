"""Reservations over HTTP: book, a refusal with the next window, list, cancel."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from api.world import World

PATH = "/api/v1/reservations"


def wanted(name: str, days: float, count: int = 1, **more: Any) -> dict[str, Any]:
    starts_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    window = {"starts_at": starts_at.isoformat(), "ends_at": (starts_at + timedelta(hours=2)).isoformat()}
    return {"name": name, "offer": "h100-1", "project": "lab", "count": count, **window, **more}


def test_from_the_booking_to_the_end(world: World, http: httpx.Client) -> None:
    headers = world.people["editor"].headers
    answer = http.post(PATH, json=wanted("demo", 1, 40, launch={"name": "run", "keys": ["laptop"]}), headers=headers)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["state"], made["launch"], made["allowed_actions"]) == ("booked", "run", ["cancel"])
    refused = http.post(PATH, json=wanted("more", 1.05, 40), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_capacity")
    assert refused.json()["nearest"]["starts_at"] > made["ends_at"]
    assert all(reason["nodes"] == [] for reason in refused.json()["reasons"]), "nodes are for operators"
    viewer = world.people["viewer"].headers
    assert [item["name"] for item in http.get(PATH, params={"project": "lab"}, headers=viewer).json()["items"]] == [
        "demo"
    ]
    assert http.get(f"{PATH}/{made['id']}", headers=world.people["foreigner"].headers).status_code == 404
    ended = http.post(f"{PATH}/demo/cancel", json={"confirm": "demo"}, headers=headers).json()
    assert ended["state"] == "cancelled"
    assert http.get(PATH, params={"project": "lab"}, headers=headers).json()["items"] == []
    listed = http.get(PATH, params={"project": "lab", "all": True}, headers=headers).json()["items"]
    assert [item["state"] for item in listed] == ["cancelled"]
    assert http.post(PATH, json=wanted("more", 1.05, 40), headers=headers).status_code == 201


def test_times_are_times(world: World, http: httpx.Client) -> None:
    headers = world.people["editor"].headers
    for window in (
        {"starts_at": "tomorrow"},
        {"ends_at": "2030-13-01T00:00:00Z"},
        {"starts_at": "2020-01-01T00:00:00Z"},
    ):
        answer = http.post(PATH, json=wanted("bad", 2) | window, headers=headers)
        assert answer.status_code == 422, answer.text
