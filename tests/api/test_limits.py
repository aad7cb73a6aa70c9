"""Limits through real sockets: 429 with Retry-After, in problem details, for each kind of caller."""

from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from api.server import Replica, serve
from gpuaas.control.bootstrap import bootstrap
from gpuaas.control.config import Rates
from gpuaas.control.http.limited import FREE, NODES

API = "/api/v1"
PASSWORD = "correct horse battery"


@pytest.fixture
def token(database_url: str) -> str:
    return bootstrap(database_url, email="root@example.org", password=PASSWORD, org="home", project="x").token


@pytest.fixture
def replica(database_url: str, token: str) -> Iterator[Replica]:
    with serve(database_url, rates=Rates(token=3, address=2, login=0.8, node=0.3)) as running:
        yield running


@pytest.fixture
def http(replica: Replica) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=replica.url, timeout=30) as client:
        yield client


def test_what_nodes_use_is_there(replica: Replica) -> None:
    assert {route.path for route in replica.app.routes} >= NODES | FREE


def until_refused(http: httpx.Client, path: str, **more: object) -> tuple[int, httpx.Response]:
    for number in range(200):
        answer = http.get(path, **more)  # type: ignore[arg-type]
        if answer.status_code == 429:
            return number, answer
    raise AssertionError("nobody was refused")


def test_a_token_has_its_share_and_so_has_an_address(http: httpx.Client, token: str) -> None:
    mine = {"Authorization": f"Bearer {token}"}
    count, answer = until_refused(http, f"{API}/whoami", headers=mine)
    assert 30 <= count < 60
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "too_many_requests"
    assert answer.json()["correlation_id"] == answer.headers["x-correlation-id"]
    assert int(answer.headers["retry-after"]) >= 1
    count, answer = until_refused(http, f"{API}/whoami", headers={"Authorization": "Bearer gpt_guess"})
    assert 19 <= count < 40
    assert http.get("/nothing").status_code == 429, "also where there is nothing"
    assert http.get("/healthz").status_code == 200


def test_logging_in_is_slower_still(http: httpx.Client) -> None:
    wrong = {"email": "root@example.org", "password": "wrong"}
    said = Counter(http.post(f"{API}/login", json=wrong).status_code for _ in range(8))
    assert said == {401: 5, 429: 3}, "after five wrong ones"
    answer = http.post(f"{API}/login", json={**wrong, "password": PASSWORD})
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
    unknown = Counter(
        http.post(f"{API}/login", json={**wrong, "email": "nobody@example.org"}).status_code for _ in range(8)
    )
    assert unknown[429] >= 3, "who does not exist looks the same"


def test_a_stream_and_a_link_are_refused_before_the_upgrade(replica: Replica) -> None:
    for path in (f"{API}/node-link", f"{API}/allocations/x/ssh"):
        refused = None
        for _ in range(60):
            try:
                with connect(replica.url.replace("http", "ws") + path, open_timeout=10):
                    pass
            except InvalidStatus as error:
                refused = error.response
                if refused.status_code == 429:
                    break
        assert refused is not None
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
