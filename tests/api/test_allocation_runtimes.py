"""Runtimes of machines over HTTP: the seed's routes, who owns what, history, and a launch with one."""

from typing import Any

import httpx
import pytest

from api.world import World
from control import catalog

API = "/api/v1"


@pytest.fixture
def editor(world: World) -> dict[str, str]:
    return world.people["editor"].headers


@pytest.fixture
def machine(world: World, http: httpx.Client, editor: dict[str, str]) -> str:
    name = catalog.new_slug()
    body = {"name": name, "offer": "h100-1", "project": world.own.project.id}
    answer = http.post(f"{API}/allocations", json=body, headers=editor)
    assert answer.status_code == 202, answer.text
    world.settle()
    return f"{API}/allocations/{name}"


def apply(http: httpx.Client, machine: str, headers: dict[str, str], **body: str) -> httpx.Response:
    return http.post(f"{machine}/runtime-bundles", json=body, headers=headers)


def test_what_a_machine_has(world: World, http: httpx.Client, editor: dict[str, str], machine: str) -> None:
    slug = catalog.new_slug()
    for version in ("1", "2"):
        catalog.publish(world.store, slug, version, support="preview")
        answer = apply(http, machine, editor, runtime_bundle_slug=slug, version=version)
        assert (answer.status_code, answer.json()["operation"]["kind"]) == (202, "runtime.apply")
        world.settle()
    viewer = world.people["viewer"].headers
    page = http.get(f"{machine}/runtime-bundles", headers=viewer).json()
    (item,) = page["items"]
    assert (item["slug"], item["desired_version"], item["current_version"], item["previous_version"]) == (
        slug, "2", "2", "1",
    )  # fmt: skip
    assert (item["state"], item["support"], item["activate"]) == (
        "applied", "preview", f"source /opt/gpuaas/runtimes/{slug}/current/activate.sh",
    )  # fmt: skip
    assert {each["version"]: (each["state"], each["current"], each["observed"]) for each in item["versions"]} == {
        "1": ("kept", False, "ready"),
        "2": ("applied", True, "ready"),
    }
    assert {each["applied_by_email"] for each in item["versions"]} == {"editor@example.org"}
    assert all(each["applied_at"] for each in item["versions"])
    assert set(item["allowed_actions"]) == {"rollback", "repair", "remove"}
    owned = {each["path"]: each["support"] for each in page["ownership"]["platform"]}
    assert owned[f"/opt/gpuaas/runtimes/{slug}/2"] == "preview"
    assert "/etc/gpuaas" in owned
    assert "/home/gpu" in {each["path"] for each in page["ownership"]["user"]}
    assert page["ownership"]["statement"]


def test_while_it_is_on_its_way(world: World, http: httpx.Client, editor: dict[str, str], machine: str) -> None:
    slug = catalog.new_slug()
    catalog.publish(world.store, slug, "1")
    world.agent.fetching = {"1": 30}
    apply(http, machine, editor, runtime_bundle_slug=slug)
    world.settle()
    world.agent.fetching = {}
    (item,) = http.get(f"{machine}/runtime-bundles", headers=editor).json()["items"]
    assert (item["desired_version"], item["current_version"], item["state"]) == ("1", None, "applying")
    assert (item["versions"][0]["observed"], item["versions"][0]["percent"]) == ("fetching", 30)
    assert item["allowed_actions"] == ["remove"]
    early = http.post(f"{machine}/runtime-bundles/{slug}/repair", headers=editor)
    assert (early.status_code, early.json()["code"]) == (409, "not_in_this_state")
    shown = http.get(f"{API}/operations/{item['versions'][0]['operation_id']}", headers=editor).json()
    assert [(phase["name"], phase["percent"]) for phase in shown["phases"]][1] == ("fetch", 30)


def test_history_is_paged(world: World, http: httpx.Client, editor: dict[str, str], machine: str) -> None:
    slug = catalog.new_slug()
    for version in ("1", "2", "3"):
        catalog.publish(world.store, slug, version)
        apply(http, machine, editor, runtime_bundle_slug=f"{slug}:{version}")
        world.settle()
    assert http.post(f"{machine}/runtime-bundles/{slug}/rollback", json={}, headers=editor).status_code == 202
    world.settle()
    assert http.delete(f"{machine}/runtime-bundles/{slug}", headers=editor).status_code == 202
    seen: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = http.get(f"{machine}/runtime-bundles/history?limit=3{cursor}", headers=editor).json()
        seen += page["items"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [(each["action"], each["version"]) for each in seen] == [
        ("rollback", "2"), ("apply", "3"), ("apply", "2"), ("apply", "1"),
    ]  # fmt: skip
    assert {each["asked_by"] for each in seen} == {world.people["editor"].id}
    assert {each["asked_by_email"] for each in seen} == {"editor@example.org"} == {seen[0]["ended_by_email"]}
    assert (seen[0]["state"], seen[0]["ended_by"]) == ("removed", world.people["editor"].id)
    for bad in ("AAAA", "x"):
        assert http.get(f"{machine}/runtime-bundles/history?cursor={bad}", headers=editor).status_code == 422


def test_a_launch_with_a_runtime(world: World, http: httpx.Client, editor: dict[str, str]) -> None:
    slug, name = catalog.new_slug(), catalog.new_slug()
    made = catalog.publish(world.store, slug, "1")
    body = {"name": name, "offer": "h100-1", "project": world.own.project.id, "runtime_bundle_id": made.id}
    answer = http.post(f"{API}/allocations", json={**body, "runtime_bundle_slug": slug}, headers=editor).json()
    assert [operation["kind"] for operation in answer["operations"]] == ["launch"]
    assert [operation["kind"] for operation in answer["runtime_operations"]] == ["runtime.apply"]
    world.settle()
    (item,) = http.get(f"{API}/allocations/{name}/runtime-bundles", headers=editor).json()["items"]
    assert item["current_version"] == "1"
    other = http.post(f"{API}/allocations", json={**body, "name": "x", "runtime_bundle_slug": "other"}, headers=editor)
    assert (other.status_code, other.json()["code"]) == (422, "runtime_mismatch")
    body = {"name": "x", "offer": "h100-1", "project": world.own.project.id}
    unknown = http.post(f"{API}/allocations", json={**body, "runtime_bundle_slug": f"{slug}:9"}, headers=editor)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_runtime")
    assert f"{slug}:1" in unknown.json()["nearest"]


def test_a_group_has_its_runtime_on_every_machine(world: World, http: httpx.Client, editor: dict[str, str]) -> None:
    name, made = catalog.new_slug(), catalog.publish(world.store)
    body = {"name": name, "offer": "h100-1", "project": world.own.project.id, "count": 2, "runtime_bundle_id": made.id}
    answer = http.post(f"{API}/allocations", json=body, headers=editor).json()
    assert len(answer["runtime_operations"]) == len(answer["operations"]) == len(answer["allocations"]) == 2
    world.settle()
    for number in range(2):
        page = http.get(f"{API}/allocations/{name}-{number}/runtime-bundles", headers=editor).json()
        assert [item["current_version"] for item in page["items"]] == ["1.0"]


def test_what_is_refused_says_why(world: World, http: httpx.Client, editor: dict[str, str], machine: str) -> None:
    slug = catalog.new_slug()
    catalog.publish(world.store, slug, "1", gpu_family="amd")
    answer = apply(http, machine, editor, runtime_bundle_slug=slug)
    assert (answer.status_code, answer.json()["code"]) == (409, "runtime_incompatible")
    assert answer.json()["reasons"] == ["it needs GPUs of amd, the machine has nvidia"]
    assert apply(http, machine, editor).status_code == 422
    assert apply(http, machine, editor, runtime_bundle_slug="../etc").status_code == 422
    assert http.delete(f"{machine}/runtime-bundles/nothing", headers=editor).status_code == 404
    viewer = world.people["viewer"].headers
    assert apply(http, machine, viewer, runtime_bundle_slug=slug).status_code == 403
