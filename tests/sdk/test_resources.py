"""Pages, streams and waiting."""

import json
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from gpuaas import ApiError, Client, OperationFailed, Unreachable
from sdk import samples
from sdk.playback import HANG_UP, Answer, Playback, problem

FOLLOW = "/api/v1/operations/op-aaaaaaaaaaaaaaaa/follow"
EVENTS = "/api/v1/events/follow"


def frame(event: str, data: Any, id: int | None = None) -> bytes:
    number = f"id: {id}\n" if id is not None else ""
    return f"{number}event: {event}\ndata: {json.dumps(data)}\n\n".encode()


def stream(*frames: bytes, broken: bool = False, size: int = 0) -> Answer:
    whole = b": hello\n\n" + b"".join(frames)
    chunks = tuple(whole[i : i + size] for i in range(0, len(whole), size)) if size else (whole,)
    return Answer(chunks=chunks, broken=broken, headers={"Content-Type": "text/event-stream"})


def test_pages_are_asked_for_when_they_are_needed(server: Playback, client: Client) -> None:
    first = samples.page(samples.allocation("a"), samples.allocation("b"), next_cursor="xyz")
    server.on("GET", "/api/v1/allocations", Answer(200, first), Answer(200, samples.page(samples.allocation("c"))))
    listed = client.allocations.list("research", released=True)
    assert next(listed).name == "a"
    assert len(server.asked) == 1
    assert [item.name for item in listed] == ["b", "c"]
    assert server.asked[0].query == "limit=200&project=research&all=true"
    assert server.asked[1].query == "limit=200&project=research&all=true&cursor=xyz"


def test_keys_on_a_machine_are_replaced_as_a_whole(server: Playback, client: Client) -> None:
    path = "/api/v1/allocations/train-1/keys"
    server.on("GET", path, Answer(200, samples.page(samples.machine_key("laptop"))))
    changed = {"allocation": samples.allocation(), "operation": samples.operation(kind="access.update")}
    server.on("PUT", path, HANG_UP, Answer(202, changed))
    assert [key.user for key in client.access.keys("train-1")] == ["ada@example.org"]
    assert client.access.set_keys("train-1", ["desk"], idempotency_key="mine").operation.kind == "access.update"
    assert [(asked.json, asked.headers["Idempotency-Key"]) for asked in server.to("PUT", path)] == [
        ({"keys": ["desk"]}, "mine")
    ] * 2


@pytest.mark.parametrize("size", [0, 1, 7])
def test_follow_ends_with_the_operation(server: Playback, client: Client, size: int) -> None:
    running, over = samples.operation(), samples.operation("succeeded")
    server.on("GET", FOLLOW, stream(frame("operation", running), b": ping\n\n", frame("operation", over), size=size))
    assert [seen.state for seen in client.operations.follow("op-aaaaaaaaaaaaaaaa")] == ["running", "succeeded"]


def test_follow_survives_lost_connections_and_shows_nothing_twice(server: Playback, client: Client) -> None:
    running, over = samples.operation(), samples.operation("succeeded")
    server.on(
        "GET",
        FOLLOW,
        stream(frame("operation", running), broken=True),
        HANG_UP,
        problem(503, "busy"),
        stream(frame("operation", running)),
        stream(frame("operation", running), frame("operation", over)),
    )
    assert [seen.state for seen in client.operations.follow("op-aaaaaaaaaaaaaaaa")] == ["running", "succeeded"]


def test_follow_gives_up_on_a_server_that_stays_away(server: Playback, client: Client, slept: list[float]) -> None:
    server.on("GET", FOLLOW, HANG_UP)
    with pytest.raises(Unreachable):
        list(client.operations.follow("op-aaaaaaaaaaaaaaaa"))
    assert 90 < sum(slept) < 100


def test_follow_tells_a_refusal_at_once(server: Playback, client: Client, slept: list[float]) -> None:
    server.on("GET", FOLLOW, problem(404, "not_found"))
    with pytest.raises(ApiError):
        list(client.operations.follow("op-aaaaaaaaaaaaaaaa"))
    assert slept == []


def test_a_stream_that_is_broken_off_with_a_reason_is_asked_once_more(server: Playback, client: Client) -> None:
    running = frame("operation", samples.operation())
    ended = frame("error", {"code": "unauthenticated", "detail": "The token expired."})
    server.on("GET", FOLLOW, stream(running, ended), problem(401, "unauthenticated", "The token expired."))
    with pytest.raises(ApiError) as refused:
        list(client.operations.follow("op-aaaaaaaaaaaaaaaa"))
    assert refused.value.status == 401
    server.on("GET", FOLLOW, stream(ended))
    with pytest.raises(Unreachable, match="expired"):
        list(client.operations.follow("op-aaaaaaaaaaaaaaaa"))


def test_follow_has_a_limit_when_asked(server: Playback, client: Client) -> None:
    server.on("GET", FOLLOW, stream(frame("operation", samples.operation())))
    with pytest.raises(TimeoutError):
        list(client.operations.follow("op-aaaaaaaaaaaaaaaa", timeout_seconds=3))


def test_wait_returns_what_succeeded(server: Playback, client: Client) -> None:
    server.on("GET", FOLLOW, stream(frame("operation", samples.operation("succeeded"))))
    seen: list[str] = []
    done = client.wait("op-aaaaaaaaaaaaaaaa", on_change=lambda operation: seen.append(operation.state))
    assert (done.state, seen) == ("succeeded", ["succeeded"])
    assert client.wait(done) is done


@pytest.mark.parametrize(("state", "why"), [("failed", "disk is full"), ("superseded", "newer request")])
def test_wait_raises_what_did_not(server: Playback, client: Client, state: str, why: str) -> None:
    server.on("GET", FOLLOW, stream(frame("operation", samples.operation(state))))
    with pytest.raises(OperationFailed, match=why) as failed:
        client.wait("op-aaaaaaaaaaaaaaaa")
    assert failed.value.operation.state == state


def test_events_resume_without_a_gap_and_without_a_double(server: Playback, client: Client) -> None:
    def numbered(*numbers: int) -> list[bytes]:
        return [frame("allocation.active", samples.event(n), n) for n in numbers]

    server.on(
        "GET",
        EVENTS,
        stream(*numbered(6, 7), broken=True),
        stream(),
        stream(*numbered(7, 8), size=5),
        stream(*numbered(9)),
    )
    seen = [event.seq for event in islice(client.events.follow("research", after=5), 4)]
    assert seen == [6, 7, 8, 9]
    assert [asked.headers.get("Last-Event-ID") for asked in server.asked] == ["5", "7", "7", "8"]
    assert server.asked[0].query == "project=research"


def test_events_from_now_on_resume_where_the_server_said_now_is(server: Playback, client: Client) -> None:
    ten = frame("allocation.active", samples.event(10), 10)
    server.on("GET", EVENTS, stream(b"id: 9\n\n", broken=True), stream(ten))
    assert next(client.events.follow()).seq == 10
    assert [asked.headers.get("Last-Event-ID") for asked in server.asked] == [None, "9"]


@pytest.mark.parametrize("garbage", [frame("operation", {"id": 3}), b"data: " + b"x" * 5_000_000])
def test_a_stream_that_makes_no_sense_is_an_error(server: Playback, client: Client, garbage: bytes) -> None:
    server.on("GET", FOLLOW, stream(garbage))
    with pytest.raises(ApiError) as refused:
        list(client.operations.follow("op-aaaaaaaaaaaaaaaa"))
    assert refused.value.code == "unreadable_answer"


def test_import_is_cheap() -> None:
    import subprocess
    import sys

    program = "import gpuaas, sys; print('httpx' in sys.modules); gpuaas.Client; print('httpx' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "True"]


def test_what_a_machine_uses_and_how_it_is(server: Playback, client: Client) -> None:
    machine = "/api/v1/allocations/train-1"
    curve = {"allocation_id": "al-x", "since": samples.AT, "step_seconds": 60, "points": [samples.use()]}
    server.on("GET", f"{machine}/metrics", Answer(200, curve))
    server.on("GET", f"{machine}/health", Answer(200, samples.health(status="degraded")))
    server.on("GET", "/api/v1/allocation-health", Answer(200, samples.page(samples.health(), samples.health())))
    found = client.allocations.metrics("train-1", since=datetime(2030, 1, 1, tzinfo=UTC), step_seconds=60)
    assert found.points[0].gpus[0].busy_percent == 96.4
    assert server.asked[0].query == "since=2030-01-01T00%3A00%3A00%2B00%3A00&step=60"
    assert client.allocations.health("train-1").status == "degraded"
    assert len(list(client.allocations.health_of_all("research"))) == 2
