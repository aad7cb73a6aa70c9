"""Every route x everybody x every kind of object: what happens follows from the permission table and memberships."""

from collections import Counter

import httpx
import pytest

from api.fill import FOREIGN, GONE, MALFORMED, OWN, RANDOM, VARIANTS, Request, ask, fill, subject_kind
from api.routes import Route, routes
from api.world import Person, World
from gpuaas.model.lifecycle import ALLOCATION
from gpuaas.model.permission import PERMISSIONS, PLATFORM_ROLES


def expected(route: Route, person: Person, variant: str, request: Request) -> int:
    permission = PERMISSIONS[route.action]
    if variant == MALFORMED:
        return 422
    if permission.scope == "public":
        return route.success
    if not person.valid:
        return 401
    if permission.scope == "self":
        return route.success if variant == OWN else 404
    if permission.scope == "platform":
        if person.platform_role not in permission.roles:
            return 403
        return 404 if variant in (RANDOM, GONE) else route.success
    if subject_kind(route) is None:  # a list of whatever the caller can see
        return route.success
    role = None
    if request.place:
        orgs = permission.scope == "org"
        role = person.orgs.get(request.place.project.org_id) if orgs else person.role_in(request.place)
    if role is None:
        return 404
    if role not in permission.roles:
        return 403
    verb = route.action.partition(".")[2]
    impossible = variant == GONE and verb in ALLOCATION.actions and verb not in ALLOCATION.allowed("released")
    return 409 if impossible and verb != "release" else route.success  # asking twice for a release is no error


def wrong(route: Route, person: Person, variant: str, request: Request, answer: httpx.Response, world: World) -> str:
    """What is wrong with an answer, or nothing."""
    want = expected(route, person, variant, request)
    if answer.status_code != want:
        return f"{answer.status_code} instead of {want}: {answer.text[:200]}"
    if want >= 400:
        problem = answer.json()
        if want == 403 and (problem["code"], problem.get("permission")) != ("forbidden", route.action):
            return f"a 403 that does not name {route.action}: {problem}"
        if want == 404 and problem["code"] != "not_found":
            return f"a 404 of another kind: {problem}"
    hidden = [place for place in (world.own, world.sibling, world.foreign) if person.role_in(place) is None]
    leaked = {id for place in hidden for id in place.ids - {request.subject} if id in answer.text}
    if leaked and person.platform_role not in PLATFORM_ROLES:
        return f"shows {leaked}"
    return ""


@pytest.mark.timeout(600)
def test_every_route_for_everybody(world: World, http: httpx.Client) -> None:
    cells: Counter[int] = Counter()
    failures = []
    for route in routes():
        for person in world.people.values():
            for variant in VARIANTS:
                request = fill(world, route, person, variant)
                if request is None:
                    continue
                answer = ask(http, person, request)
                cells[answer.status_code] += 1
                if why := wrong(route, person, variant, request, answer, world):
                    failures.append(f"{route} as {person.name}, {variant}: {why}")
    print(f"{sum(cells.values())} cells: {dict(sorted(cells.items()))}")
    assert not failures, f"{len(failures)} cells are wrong:\n" + "\n".join(failures[:40])
    assert sum(cells.values()) > 1500
    assert {200, 202, 204, 401, 403, 404, 409, 422} <= set(cells)


def test_what_is_foreign_looks_like_what_does_not_exist(world: World, http: httpx.Client) -> None:
    """Apart from the name that was asked for, the two answers are the same: no oracle for ids."""
    person = world.people["editor"]
    compared = 0
    for route in routes():
        said = []
        for variant in (FOREIGN, RANDOM):
            request = fill(world, route, person, variant)
            if request and request.subject:
                answer = ask(http, person, request)
                said.append(answer.text.replace(request.subject, "*").replace(answer.headers["x-correlation-id"], "*"))
        if len(said) == 2:
            compared += 1
            assert said[0] == said[1], route
    assert compared >= 15


def test_names_of_other_tenants_do_not_answer(world: World, http: httpx.Client) -> None:
    """`lab` exists in both orgs: everybody means their own."""
    for name, place in (("editor", world.own), ("foreigner", world.foreign)):
        answer = http.get("/api/v1/events", params={"project": "lab"}, headers=world.people[name].headers)
        assert {item["project_id"] for item in answer.json()["items"]} == {place.project.id}
        answer = http.get("/api/v1/allocations/active", headers=world.people[name].headers)
        assert answer.json()["id"] == place.allocations["active"]


def test_references_in_a_launch_are_scoped_too(world: World, http: httpx.Client) -> None:
    """Ids in the body are swapped for those of somebody else: as if they did not exist."""
    editor, foreigner = world.people["editor"], world.people["foreigner"]
    theirs = http.get("/api/v1/keys", headers=foreigner.headers).json()["items"][0]["id"]
    body = {"name": "swapped", "offer": "h100-1", "project": world.own.project.id, "access": {"keys": [theirs]}}
    answer = http.post("/api/v1/allocations", json=body, headers=editor.headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
