"""`gpuaas reservation`, and a launch that uses one."""

from typing import Any

from cli.conftest import Gpuaas
from sdk import samples
from sdk.playback import Answer, Playback

PATH = "/api/v1/reservations"


def reservation(**more: Any) -> dict[str, Any]:
    return {
        "id": "rs-aaaaaaaaaaaaaaaa",
        "org_id": "og-aaaaaaaaaaaaaaaa",
        "project_id": "pj-aaaaaaaaaaaaaaaa",
        "name": "demo",
        "state": "booked",
        "offer": "h100-8",
        "count": 2,
        "owner_id": "us-aaaaaaaaaaaaaaaa",
        "starts_at": "2030-01-31T12:00:00Z",
        "ends_at": "2030-01-31T18:00:00Z",
        "launch": None,
        "trouble": None,
        "ready_at": None,
        "allocation_ids": [],
        "allowed_actions": ["cancel"],
        "created_at": "2030-01-01T12:00:00Z",
        "ended_at": None,
        **more,
    }


def test_book_list_cancel(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("POST", PATH, Answer(201, reservation()))
    window = ("--from", "2030-01-31T12:00:00Z", "--for", "6h")
    said = gpuaas(
        "reservation", "book", "demo", "-o", "h100-8", "-n", "2", *window, "-p", "research", "--launch", "run"
    )
    assert said.code == 0, said.err
    assert server.to("POST", PATH)[0].json == {
        "name": "demo", "offer": "h100-8", "project": "research", "count": 2, "launch": {"name": "run"},
        "starts_at": "2030-01-31T12:00:00+00:00", "ends_at": "2030-01-31T18:00:00+00:00",
    }  # fmt: skip
    assert gpuaas("reservation", "book", "demo", "-o", "h100-8", "--from", "2030-01-31").code == 2, "how long?"
    server.on("GET", PATH, Answer(200, samples.page(reservation(trouble="a slot is in use"))))
    assert "a slot is in use" in gpuaas("reservation", "ls", "-p", "research").out
    server.on("GET", f"{PATH}/demo", Answer(200, reservation()))
    server.on("POST", f"{PATH}/rs-aaaaaaaaaaaaaaaa/cancel", Answer(200, reservation(state="cancelled")))
    said = gpuaas("reservation", "cancel", "demo", "--yes")
    assert "cancelled" in said.out
    assert server.to("POST", f"{PATH}/rs-aaaaaaaaaaaaaaaa/cancel")[0].json == {"confirm": "demo"}


def test_a_launch_takes_offer_and_count_from_it(gpuaas: Gpuaas, server: Playback) -> None:
    server.on("GET", f"{PATH}/demo", Answer(200, reservation(ready_at="2030-01-31T12:00:01Z")))
    body = {"allocations": [samples.allocation()], "operations": [samples.operation()]}
    server.on("POST", "/api/v1/allocations", Answer(202, {**body, "queued": False, "reasons": []}))
    assert gpuaas("launch", "run", "--reservation", "demo", "-d").code == 0
    asked = server.to("POST", "/api/v1/allocations")[0].json
    assert (asked["offer"], asked["count"], asked["reservation"]) == ("h100-8", 2, "rs-aaaaaaaaaaaaaaaa")
    assert gpuaas("launch", "run", "-d").code == 2
    assert gpuaas("launch", "run", "-d", "--offer", "h100-8", "--reservation", "demo").code == 2
