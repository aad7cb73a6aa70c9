"""What holds for every route: correlation ids, problem details, limits, pages, confirmation."""

import base64

import httpx
import pytest

from api.fill import OWN, ask, fill
from api.routes import Route, routes
from api.world import World, launch

API = "/api/v1"
PROBLEM = {"type", "title", "status", "code", "detail", "hint", "correlation_id"}


def is_problem(answer: httpx.Response) -> None:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert set(problem) >= PROBLEM
    assert problem["status"] == answer.status_code
    assert problem["type"] == f"urn:gpuaas:problem:{problem['code']}"
    assert problem["detail"]
    assert problem["correlation_id"] == answer.headers["x-correlation-id"]


def every_kind_of_answer(http: httpx.Client, world: World, headers: dict[str, str]) -> list[httpx.Response]:
    editor, viewer = ({**world.people[name].headers, **headers} for name in ("editor", "viewer"))
    plan = {"offer": "h100-1", "project": world.own.project.id}
    return [
        http.get("/healthz", headers=headers),
        http.get(f"{API}/openapi.json", headers=headers),
        http.get(f"{API}/whoami", headers=editor),
        http.get(f"{API}/whoami", headers=headers),  # 401
        http.post(f"{API}/allocations", json={**plan, "name": "x"}, headers=viewer),  # 403
        http.get(f"{API}/allocations/nothing", headers=editor),  # 404
        http.get("/nothing/here", headers=headers),  # 404: no route
        http.get(f"{API}/openapi/swagger", headers=headers),  # 404: the framework's own pages are closed
        http.patch(f"{API}/whoami", headers=editor),  # 405
        http.post(f"{API}/allocations", json={**plan, "name": "active"}, headers=editor),  # 409
        http.post(f"{API}/tokens", json={"name": "x" * 300_000}, headers=editor),  # 413
        http.post(f"{API}/tokens", content=b"{", headers=editor),  # 400
        http.post(f"{API}/tokens", json={}, headers=editor),  # 422
        http.request("OPTIONS", f"{API}/tokens", headers=editor),
    ]


def test_a_correlation_id_is_on_every_answer(world: World, http: httpx.Client) -> None:
    for answer in every_kind_of_answer(http, world, {"X-Correlation-ID": "given-by-me.1"}):
        assert answer.headers.get_list("x-correlation-id") == ["given-by-me.1"], answer.request.url
    made = [answer.headers["x-correlation-id"] for answer in every_kind_of_answer(http, world, {})]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("given", ["short", "x" * 65, "has space", 'quo"te', "new\tline"])
def test_a_correlation_id_that_is_not_one_is_replaced(http: httpx.Client, given: str) -> None:
    answer = http.get("/healthz", headers={"X-Correlation-ID": given})
    assert answer.headers["x-correlation-id"].startswith("cr-")


def test_errors_are_problem_details(world: World, http: httpx.Client) -> None:
    seen = set()
    for answer in every_kind_of_answer(http, world, {}):
        if answer.status_code >= 400:
            seen.add(answer.status_code)
            is_problem(answer)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert seen == {400, 401, 403, 404, 405, 409, 413, 422}


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Basic eDp5", "Bearer gpt_unknown", "bearer \xe9", "Bearer a b", "Bearer " + "x" * 5000]
)
def test_what_is_not_a_valid_token_is_401(http: httpx.Client, value: str) -> None:
    answer = http.get(f"{API}/whoami", headers={b"Authorization": value.encode("latin-1")})
    is_problem(answer)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_password_and_an_unknown_user_look_the_same(http: httpx.Client) -> None:
    said = []
    for email in ("root@example.org", "nobody@example.org"):
        answer = http.post(f"{API}/login", json={"email": email, "password": "wrong"})
        assert answer.status_code == 401
        said.append({key: value for key, value in answer.json().items() if key != "correlation_id"})
    assert said[0] == said[1]


def test_a_body_has_a_limit(world: World, http: httpx.Client) -> None:
    headers = world.people["editor"].headers

    def endless() -> object:
        for _ in range(100):
            yield b" " * 10_000

    for content in (b"[" * 262_145, endless()):
        answer = http.post(f"{API}/tokens", content=content, headers=headers)  # type: ignore[arg-type]
        is_problem(answer)
        assert answer.status_code == 413


@pytest.mark.parametrize("route", [route for route in routes() if route.success == 202], ids=str)
def test_long_work_says_where_to_look(world: World, http: httpx.Client, route: Route) -> None:
    person = world.people["editor"]
    request = fill(world, route, person, OWN)
    assert request is not None
    answer = ask(http, person, request)
    followed = http.get(answer.headers["location"], headers=person.headers)
    assert followed.status_code == 200
    assert followed.json()["id"] == answer.headers["location"].rpartition("/")[2]


@pytest.mark.parametrize("verb", ["restart", "release"])
@pytest.mark.parametrize("body", [{}, {"confirm": ""}, {"confirm": "other"}, {"confirm": None}, {"confirm": "ACTIVE"}])
def test_what_interrupts_needs_confirmation(world: World, http: httpx.Client, verb: str, body: object) -> None:
    headers = world.people["editor"].headers
    machine = f"{API}/allocations/{world.own.allocations['active']}"
    answer = http.post(f"{machine}/{verb}", json=body, headers=headers)
    assert answer.status_code == 422
    assert http.get(machine, headers=headers).json()["state"] == "active"


def test_a_machine_of_a_group_can_be_confirmed(world: World, http: httpx.Client) -> None:
    """Its name is longer than the one that was asked for."""
    headers, name = world.people["editor"].headers, "n" * 40
    body = {"name": name, "offer": "b200-1", "count": 2, "wait": True, "project": world.own.project.id}
    made = http.post(f"{API}/allocations", json=body, headers=headers).json()["allocations"]
    assert [item["name"] for item in made] == [f"{name}-0", f"{name}-1"]
    for item in made:
        answer = http.post(f"{API}/allocations/{item['id']}/release", json={"confirm": item["name"]}, headers=headers)
        assert answer.status_code == 202


LISTS = {
    "/allocations?all=true": "id",
    "/operations?": "id",
    "/allocations/active/sessions?": "session",
    "/events?": "seq",
    "/audit?": "seq",
    "/platform/audit?": "seq",
}


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("size", [1, 3, 500])
def test_pages_show_everything_exactly_once(world: World, http: httpx.Client, path: str, size: int) -> None:
    """Also what is there while others add more."""
    name = "platform_admin" if path.startswith("/platform") else "foreigner"
    headers = world.people[name].headers
    key = LISTS[path]
    before = http.get(f"{API}{path}&limit=500", headers=headers).json()
    assert before["next_cursor"] is None
    walked: list[object] = []
    cursor = ""
    while True:
        page = http.get(f"{API}{path}&limit={size}{cursor}", headers=headers).json()
        assert len(page["items"]) <= size
        walked += [item[key] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
        if len(walked) == size:
            more = f"m{abs(hash((path, size)))}"
            world.store.transact(launch, world.people["foreigner"], world.globex.id, more, offer="b200-1", wait=True)
    assert len(walked) == len(set(walked))
    assert {item[key] for item in before["items"]} <= set(walked)


@pytest.mark.parametrize("path", LISTS)
def test_a_cursor_that_was_changed_is_refused(world: World, http: httpx.Client, path: str) -> None:
    name = "platform_admin" if path.startswith("/platform") else "foreigner"
    headers = world.people[name].headers
    cursor = http.get(f"{API}{path}&limit=1", headers=headers).json()["next_cursor"]
    inside = bytearray(base64.urlsafe_b64decode(cursor))
    inside[0] ^= 1
    changed = base64.urlsafe_b64encode(bytes(inside)).decode()
    for bad in (changed, cursor[:-4], cursor[4:], "AAAA", "MQ==", "x", "=", "%00", "a" * 201, "é"):
        answer = http.get(f"{API}{path}&cursor={bad}", headers=headers)
        is_problem(answer)
        assert answer.status_code == 422, (bad, answer.text)


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=-1", "limit=1e3", "limit=" + "9" * 40, "limit=x"])
def test_limits_are_bounded(world: World, http: httpx.Client, query: str) -> None:
    for path in LISTS:
        answer = http.get(f"{API}{path}&{query}", headers=world.people["platform_admin"].headers)
        assert answer.status_code == 422, path
