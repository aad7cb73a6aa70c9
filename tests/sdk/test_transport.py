"""One logical call: what is sent, what is tried again, how an answer becomes an error."""

import socket

import pytest

import gpuaas
from gpuaas import ApiError, Client, Unreachable
from gpuaas.sdk.retry import Retry
from sdk import samples
from sdk.playback import HANG_UP, Answer, Playback, problem

KEYS = "/api/v1/keys"


def test_a_call_carries_the_token_and_a_key_of_its_own(server: Playback, client: Client) -> None:
    server.on("POST", KEYS, Answer(201, samples.key()))
    client.keys.add("laptop", "ssh-ed25519 AAAA")
    client.keys.add("laptop", "ssh-ed25519 AAAA")
    first, second = server.to("POST", KEYS)
    assert first.headers["Authorization"] == "Bearer gpt_mine"
    assert first.headers["User-Agent"] == f"gpuaas/{gpuaas.__version__}"
    assert first.json == {"name": "laptop", "public_key": "ssh-ed25519 AAAA"}
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]


def test_a_lost_connection_is_tried_again_with_the_same_key(
    server: Playback, client: Client, slept: list[float]
) -> None:
    server.on("POST", KEYS, HANG_UP, HANG_UP, Answer(201, samples.key()))
    assert client.keys.add("laptop", "ssh-ed25519 AAAA").name == "laptop"
    assert len({asked.headers["Idempotency-Key"] for asked in server.to("POST", KEYS)}) == 1
    assert slept == [0.1, 0.2]


def test_an_own_key_can_be_given(server: Playback, client: Client) -> None:
    body = {"allocations": [], "operations": [], "queued": False, "reasons": []}
    server.on("POST", "/api/v1/allocations", Answer(202, body))
    client.allocations.launch("a", offer="h100-1", keys=["laptop"], idempotency_key="night-17")
    (asked,) = server.asked
    assert asked.headers["Idempotency-Key"] == "night-17"
    assert asked.json == {"name": "a", "offer": "h100-1", "access": {"keys": ["laptop"]}}


def test_a_busy_server_says_when_to_come_back(server: Playback, client: Client, slept: list[float]) -> None:
    busy = problem(503, "busy")
    server.on("DELETE", f"{KEYS}/laptop", Answer(503, busy.body, {"Retry-After": "7"}), Answer(204))
    client.keys.remove("laptop")
    assert slept == [7.1]
    assert len({asked.headers["Idempotency-Key"] for asked in server.asked}) == 1


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "86400"}])
def test_a_server_that_does_not_say_or_says_much_later_is_not_waited_for(
    server: Playback, client: Client, slept: list[float], headers: dict[str, str]
) -> None:
    server.on("GET", KEYS, Answer(503, problem(503, "down").body, headers))
    with pytest.raises(ApiError) as refused:
        list(client.keys.list())
    assert (refused.value.status, slept) == (503, [])


def test_the_first_try_may_still_be_worked_on(server: Playback, client: Client) -> None:
    server.on("POST", KEYS, HANG_UP, problem(409, "in_progress"), Answer(201, samples.key()))
    assert client.keys.add("laptop", "ssh-ed25519 AAAA").name == "laptop"


def test_tries_are_bounded(server: Playback, client: Client, slept: list[float]) -> None:
    server.on("GET", "/healthz", HANG_UP)
    with pytest.raises(Unreachable, match=server.url):
        client.health()
    assert len(server.asked) == 5
    assert slept == [0.1, 0.2, 0.4, 0.8]


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url, retry=Retry(attempts=2, sleep=lambda _: None)) as client, pytest.raises(Unreachable):
            client.whoami()


def test_problem_details_become_an_error(server: Playback, client: Client) -> None:
    reasons = [{"code": "no_free_slot"}]
    server.on("GET", KEYS, problem(409, "no_capacity", "Nothing fits.", "Wait.", reasons=reasons))
    with pytest.raises(ApiError) as refused:
        list(client.keys.list())
    error = refused.value
    assert (error.code, error.status, error.message, error.hint) == ("no_capacity", 409, "Nothing fits.", "Wait.")
    assert (error.correlation_id, error.extra) == ("cr-1", {"reasons": reasons})
    assert error.problem()["detail"] == "Nothing fits."
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[1, 2]", b"\xff\xfe", b'{"detail": null}'])
def test_an_error_page_of_a_proxy_is_an_error_too(server: Playback, client: Client, body: bytes) -> None:
    server.on("GET", KEYS, Answer(502, body, {"X-Correlation-ID": "cr-2"}))
    with pytest.raises(ApiError, match="502 Bad Gateway") as refused:
        list(client.keys.list())
    assert (refused.value.code, refused.value.correlation_id) == ("http_502", "cr-2")


@pytest.mark.parametrize("body", [b"", b"not json", b'{"items": 3, "next_cursor": null}', b"\xff"])
def test_an_answer_that_makes_no_sense_is_an_error(server: Playback, client: Client, body: bytes) -> None:
    server.on("GET", KEYS, Answer(200, body))
    with pytest.raises(ApiError) as refused:
        list(client.keys.list())
    assert refused.value.code == "unreadable_answer"


def test_unknown_fields_of_a_newer_server_are_no_problem(server: Playback, client: Client) -> None:
    server.on("GET", KEYS, Answer(200, samples.page({**samples.key(), "shape": "round"})))
    assert [key.name for key in client.keys.list()] == ["laptop"]


@pytest.mark.parametrize("name", ["", " ", ".", ".."])
def test_a_name_can_never_become_another_route(server: Playback, client: Client, name: str) -> None:
    with pytest.raises(ApiError, match="is not a name"):
        client.allocations.show(name)
    assert server.asked == []


def test_a_name_is_one_part_of_the_path(server: Playback, client: Client) -> None:
    with pytest.raises(ApiError):
        client.allocations.show("../users?x=/#y")
    assert server.asked[0].path == "/api/v1/allocations/..%2Fusers%3Fx%3D%2F%23y"


@pytest.mark.parametrize("address", ["", "gpu.example.org", "ftp://x", "http://", "http://u:p@x", "http://x:y"])
def test_an_address_is_checked(address: str) -> None:
    with pytest.raises(ApiError, match="address"):
        Client(address)


def test_the_token_is_not_in_the_repr(client: Client) -> None:
    assert "gpt_mine" not in repr(client)


def test_login_signs_the_client_in(server: Playback, client: Client) -> None:
    server.on("POST", "/api/v1/login", Answer(200, samples.issued("gpt_new")))
    server.on("GET", "/api/v1/whoami", Answer(200, samples.whoami()))
    client.login("ada@example.org", "correct horse battery")
    assert client.whoami().user.email == "ada@example.org"
    assert server.asked[-1].headers["Authorization"] == "Bearer gpt_new"
