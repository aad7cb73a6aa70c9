"""One Idempotency-Key, one effect: on every mutation, whoever asks how often and where."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import text

from api.fill import OWN, Request, ask, fill
from api.routes import Route, routes
from api.server import Replica, serve
from api.world import Person, World
from gpuaas.model.permission import PERMISSIONS

MUTATING = [route for route in routes() if route.mutates and "Idempotency-Key" in route.headers]
SECRETS = {"NewToken", "NewInvitation", "NewOrgInvitation", "NewServiceToken", "NewJoinToken", "NewWebhook", "Rotation"}


@pytest.fixture(scope="module")
def second(module_database_url: str) -> Iterator[Replica]:
    with serve(module_database_url) as running:
        yield running


def who(world: World, route: Route) -> Person:
    platform = PERMISSIONS[route.action].scope == "platform"
    return world.people["platform_admin" if platform else "tenant_admin"]


def effects(world: World) -> int:
    """Every mutation leaves exactly one audit entry."""
    return int(world.store.transact(lambda tx: tx.conn.execute(text("SELECT count(*) FROM audit")).scalar_one()))


def keyed(request: Request, key: str) -> Request:
    request.headers["Idempotency-Key"] = key
    return request


@pytest.mark.parametrize("route", MUTATING, ids=str)
def test_the_same_request_again_gets_the_same_answer(
    world: World, http: httpx.Client, second: Replica, route: Route
) -> None:
    person = who(world, route)
    request = fill(world, route, person, OWN)
    assert request is not None
    keyed(request, f"again-{route.method}-{route.path}")
    before = effects(world)
    first = ask(http, person, request)
    assert first.status_code == route.success, first.text
    with httpx.Client(base_url=second.url) as elsewhere:
        repeated = [ask(http, person, request), ask(elsewhere, person, request)]
    assert effects(world) == before + 1
    for answer in repeated:
        if route.body in SECRETS:
            assert (answer.status_code, answer.json()["code"]) == (409, "secret_already_shown")
            assert "secret" not in answer.json()
        else:
            assert (answer.status_code, answer.content) == (first.status_code, first.content)
            assert answer.headers.get("location") == first.headers.get("location")


def test_another_request_with_the_same_key_is_refused(world: World, http: httpx.Client) -> None:
    headers = {**world.people["tenant_admin"].headers, "Idempotency-Key": "reused"}
    first = {"slug": "one", "name": "x", "org": world.lab.org_id}
    assert http.post("/api/v1/projects", json=first, headers=headers).status_code == 201
    for path, body in (("/projects", {"slug": "two", "name": "x"}), ("/keys", {"name": "k", "public_key": "x" * 20})):
        answer = http.post(f"/api/v1{path}", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_a_key_belongs_to_its_user(world: World, http: httpx.Client) -> None:
    for name in ("editor", "viewer"):
        headers = {**world.people[name].headers, "Idempotency-Key": "mine"}
        answer = http.post("/api/v1/tokens", json={"name": name}, headers=headers)
        assert answer.status_code == 201


def test_a_refusal_is_not_kept(world: World, http: httpx.Client) -> None:
    """What failed had no effect, so the same key may succeed later."""
    headers = {**world.people["editor"].headers, "Idempotency-Key": "later"}
    body = {"name": "later", "offer": "later-1", "project": world.own.project.id, "wait": True}
    assert http.post("/api/v1/allocations", json=body, headers=headers).status_code == 404
    offer = {"slug": "later-1", "name": "x", "gpu_model": "X", "gpu_count": 1, "cpus": 1, "memory_mib": 256}
    http.post("/api/v1/offers", json=offer, headers=world.people["platform_admin"].headers)
    assert http.post("/api/v1/allocations", json=body, headers=headers).status_code == 202


@pytest.mark.parametrize("key", ["", "x" * 129, "a b", "é"])
def test_keys_are_short_and_printable(world: World, http: httpx.Client, key: str) -> None:
    given = [(b"Authorization", f"Bearer {world.people['editor'].secret}".encode()), (b"Idempotency-Key", key.encode())]
    answer = http.post("/api/v1/tokens", json={"name": "x"}, headers=given)
    assert answer.status_code == 422


def test_many_at_once_over_two_servers(world: World, http: httpx.Client, second: Replica) -> None:
    """32 threads, one key: one effect; the others get the same answer, or are told to wait."""
    person = world.people["editor"]
    servers = http, httpx.Client(base_url=second.url, timeout=30)
    for number in range(5):
        body = {"name": f"at-once-{number}", "offer": "b200-1", "project": world.own.project.id, "wait": True}
        headers = {**person.headers, "Idempotency-Key": f"at-once-{number}"}
        before = effects(world)

        def submit(n: int, body: object = body, headers: dict[str, str] = headers) -> httpx.Response:
            return servers[n % 2].post("/api/v1/allocations", json=body, headers=headers)

        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(submit, range(32)))
        said = Counter(answer.status_code for answer in answers)
        assert effects(world) == before + 1, said
        assert set(said) <= {202, 409}
        assert len({answer.content for answer in answers if answer.status_code == 202}) == 1
        for answer in answers:
            if answer.status_code == 409:
                assert answer.json()["code"] == "in_progress"
                assert answer.headers["retry-after"] == "1"


def test_who_leaves_a_project_may_use_a_key(world: World, http: httpx.Client) -> None:
    """The answer to the request itself is not a retry."""
    guest, admin = world.guest, world.people["tenant_admin"]
    seat = f"/api/v1/projects/{world.own.project.id}/members/{guest.id}"
    http.put(seat, json={"role": "admin"}, headers=admin.headers)
    assert http.delete(seat, headers={**guest.headers, "Idempotency-Key": "leaving"}).status_code == 204


def test_an_old_answer_is_not_for_those_who_lost_access(world: World, http: httpx.Client) -> None:
    """T24: a retry is answered only while the caller could still make the request."""
    guest, admin = world.guest, world.people["tenant_admin"]
    seat = f"/api/v1/projects/{world.own.project.id}/members/{guest.id}"
    assert http.put(seat, json={"role": "editor"}, headers=admin.headers).status_code == 200
    body = {"name": "left-behind", "offer": "b200-1", "project": world.own.project.id, "wait": True}
    headers = {**guest.headers, "Idempotency-Key": "left-behind"}
    assert http.post("/api/v1/allocations", json=body, headers=headers).status_code == 202
    narrow = http.post("/api/v1/tokens", json={"name": "n", "scopes": ["read"]}, headers=guest.headers).json()["secret"]
    with_less = {**headers, "Authorization": f"Bearer {narrow}"}
    assert http.post("/api/v1/allocations", json=body, headers=with_less).status_code == 403
    assert http.delete(seat, headers=admin.headers).status_code == 204
    assert http.post("/api/v1/allocations", json=body, headers=headers).status_code == 404
