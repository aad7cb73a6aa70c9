"""The catalog over HTTP: what operators publish, what everybody sees, what nodes fetch."""

import hashlib
import os
import time
from typing import Any

import httpx
import pytest

from api.server import IMAGES
from api.world import World
from control import catalog
from control.fleet import Agent
from gpuaas.control.store import runtime_bundles
from gpuaas.wire import node_request

API = "/api/v1"


@pytest.fixture
def operator(world: World) -> dict[str, str]:
    return world.people["platform_ops"].headers


def signed(agent: Agent, digest: str, at: int | None = None, method: str = "GET") -> dict[str, str]:
    at = int(time.time()) if at is None else at
    proof = agent.sign(node_request.signed(method, node_request.image_path(digest), at))
    return {node_request.NODE: agent.node_id, node_request.TIME: str(at), node_request.SIGNATURE: proof}


def described(http: httpx.Client, operator: dict[str, str], *name: str, **more: Any) -> dict[str, Any]:
    answer = http.post(f"{API}/runtime-bundles", json={"manifest": catalog.manifest(*name, **more)}, headers=operator)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def published(http: httpx.Client, operator: dict[str, str], slug: str, version: str = "1.0", **more: Any) -> Any:
    made = described(http, operator, slug, version, **more)
    image = catalog.content(slug, version)
    assert http.put(f"{API}/runtime-images/{made['digest']}", content=image, headers=operator).status_code == 200
    answer = http.post(f"{API}/runtime-bundles/{made['id']}/publish", headers=operator)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_from_a_manifest_to_the_catalog(world: World, http: httpx.Client, operator: dict[str, str]) -> None:
    slug = catalog.new_slug()
    viewer = world.people["viewer"].headers
    draft = described(http, operator, slug, gpu_family="nvidia", min_driver="550", support="preview")
    assert (draft["state"], draft["received_bytes"], draft["scope"]) == ("draft", 0, "platform")
    path = f"{API}/runtime-bundles/{draft['id']}"
    assert http.get(path, headers=viewer).status_code == 404
    early = http.post(f"{path}/publish", headers=operator)
    assert (early.status_code, early.json()["code"]) == (409, "no_image")
    image = catalog.content(slug, "1.0")
    where = f"{API}/runtime-images/{draft['digest']}"
    first = http.put(where, content=image[:30], headers={**operator, "Content-Range": "bytes 0-29/100"})
    assert (first.json()["received_bytes"], first.json()["complete"]) == (30, False)
    assert http.get(path, headers=operator).json()["received_bytes"] == 30
    hole = http.put(where, content=image[50:], headers={**operator, "Content-Range": "bytes 50-99/100"})
    assert (hole.status_code, hole.json()["code"], hole.json()["received"]) == (409, "hole", 30)
    rest = http.put(where, content=image[30:], headers={**operator, "Content-Range": "bytes 30-99/100"})
    assert rest.json()["complete"]
    assert http.post(f"{path}/publish", headers=operator).json()["state"] == "published"
    shown = http.get(path, headers=viewer).json()
    assert (shown["slug"], shown["product"], shown["family"], shown["support"]) == (
        slug, slug.title(), "nvidia", "preview",
    )  # fmt: skip
    assert shown["requirements"]["min_driver"] == "550"
    assert shown["root"] == f"/opt/gpuaas/runtimes/{slug}/1.0"
    assert shown["manifest"]["layers"][0]["sha256"] == hashlib.sha256(image).hexdigest()
    listed = http.get(f"{API}/runtime-bundles?limit=500", headers=viewer).json()["items"]
    assert [item["id"] for item in listed if item["slug"] == slug] == [draft["id"]]


def test_bytes_that_are_not_the_image_are_refused(http: httpx.Client, operator: dict[str, str]) -> None:
    made = described(http, operator, catalog.new_slug())
    where = f"{API}/runtime-images/{made['digest']}"
    answer = http.put(where, content=b"x" * 100, headers=operator)
    assert (answer.status_code, answer.json()["code"]) == (422, "digest_mismatch")
    for bad in ("bytes 0-99/101", "bytes 99-0/100", "0-99", "bytes 0-100/100", "bytes */100"):
        answer = http.put(where, content=b"", headers={**operator, "Content-Range": bad})
        assert answer.status_code == 422, bad
    unknown = http.put(f"{API}/runtime-images/{'0' * 64}", content=b"x", headers=operator)
    assert unknown.status_code == 404
    assert http.post(f"{API}/runtime-bundles/{made['id']}/publish", headers=operator).status_code == 409


def test_a_version_has_one_content(http: httpx.Client, operator: dict[str, str]) -> None:
    slug = catalog.new_slug()
    draft = described(http, operator, slug, image=b"another")
    again = described(http, operator, slug)  # a draft is what was said of it last
    assert (again["id"], again["digest"] != draft["digest"]) == (draft["id"], True)
    published(http, operator, slug)
    assert described(http, operator, slug)["state"] == "published"  # the same once more changes nothing
    other = http.post(
        f"{API}/runtime-bundles", json={"manifest": catalog.manifest(slug, image=b"other")}, headers=operator
    )
    assert (other.status_code, other.json()["code"]) == (409, "already_there")


def test_names_are_resolved_and_never_replaced(world: World, http: httpx.Client, operator: dict[str, str]) -> None:
    slug, viewer = catalog.new_slug(), world.people["viewer"].headers
    for version in ("1.9", "1.10", "1.10+ml"):
        published(http, operator, slug, version, default=version == "1.9")

    def version(name: str) -> str:
        answer = http.get(f"{API}/runtime-bundles/{name}", headers=viewer)
        return str(answer.json().get("version", answer.json().get("code")))

    assert version(slug) == "1.9"
    assert version(f"{slug}@1.x") == "1.10"
    assert version(f"{slug}-1.10-ml") == "1.10+ml"
    unknown = http.get(f"{API}/runtime-bundles/{slug}@1.11", headers=viewer)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_runtime")
    assert f"{slug}:1.10" in unknown.json()["nearest"]
    far = http.get(f"{API}/runtime-bundles/0q0q0q0q0q0q0q", headers=viewer).json()
    assert (far["code"], far["nearest"], far["hint"]) == ("unknown_runtime", [], "See `gpuaas runtime list --catalog`.")
    listed = http.get(f"{API}/runtime-bundles/{slug}/versions", headers=viewer).json()["items"]
    assert [item["version"] for item in listed] == ["1.9", "1.10", "1.10+ml"]


def test_what_is_deprecated_is_shown_on_demand(world: World, http: httpx.Client, operator: dict[str, str]) -> None:
    made, viewer = published(http, operator, catalog.new_slug()), world.people["viewer"].headers
    answer = http.post(f"{API}/runtime-bundles/{made['id']}/deprecate", headers=operator)
    assert (answer.json()["state"], answer.json()["allowed_actions"]) == ("deprecated", [])

    def ids(query: str) -> set[str]:
        return {item["id"] for item in http.get(f"{API}/runtime-bundles?{query}", headers=viewer).json()["items"]}

    assert made["id"] not in ids("limit=500")
    assert made["id"] in ids("limit=500&all=true")
    again = http.post(f"{API}/runtime-bundles/{made['id']}/publish", headers=operator)
    assert (again.status_code, again.json()["code"]) == (409, "not_in_this_state")


def test_pages_show_everything_exactly_once(world: World, http: httpx.Client) -> None:
    slug = catalog.new_slug()
    made = {catalog.publish(world.store, slug, f"1.{number}").id for number in range(5)}
    seen, cursor = [], ""
    while True:
        page = http.get(f"{API}/runtime-bundles?limit=2{cursor}", headers=world.people["viewer"].headers).json()
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(seen) == len(set(seen))
    assert made <= set(seen)
    for bad in ("AAAA", "x", "%00"):
        answer = http.get(f"{API}/runtime-bundles?cursor={bad}", headers=world.people["viewer"].headers)
        assert answer.status_code == 422


@pytest.mark.parametrize(
    "change",
    [
        {"bundle": "../../etc"},
        {"version": "1.0\n"},
        {"layers": []},
        {"layers": [{"sha256": "x" * 64, "size": 1}]},
        {"layers": [{"sha256": "0" * 64, "size": 0}]},
        {"layers": [{"sha256": "0" * 64, "size": 2**62}]},
        {"layers": [{"sha256": "0" * 64, "size": 10**30}]},
        {"architecture": "riscv"},
        {"built_with": "a\x00b"},
        {"format": 2},
        {"recipe": None},
    ],
    ids=str,
)
def test_a_manifest_that_lies_is_refused(http: httpx.Client, operator: dict[str, str], change: dict[str, Any]) -> None:
    said = {**catalog.manifest(catalog.new_slug()), **change}
    answer = http.post(f"{API}/runtime-bundles", json={"manifest": said}, headers=operator)
    assert answer.status_code == 422, answer.text


def test_nodes_fetch_images_and_go_on_where_they_were_cut_off(
    world: World, http: httpx.Client, operator: dict[str, str]
) -> None:
    made = published(http, operator, catalog.new_slug())
    image, where = catalog.content(made["slug"], "1.0"), node_request.image_path(made["digest"])
    whole = http.get(where, headers=signed(world.agent, made["digest"]))
    assert (whole.status_code, whole.content, whole.headers["content-length"]) == (200, image, "100")
    rest = http.get(where, headers={**signed(world.agent, made["digest"]), "Range": "bytes=60-"})
    assert (rest.status_code, rest.content) == (206, image[60:])
    assert rest.headers["content-range"] == "bytes 60-99/100"
    part = http.get(where, headers={**signed(world.agent, made["digest"]), "Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, image[10:20])
    beyond = http.get(where, headers={**signed(world.agent, made["digest"]), "Range": "bytes=100-"})
    assert beyond.status_code == 416


def test_only_nodes_fetch_and_only_now(world: World, http: httpx.Client, operator: dict[str, str]) -> None:
    made = published(http, operator, catalog.new_slug())
    other = published(http, operator, catalog.new_slug())
    where, now = node_request.image_path(made["digest"]), int(time.time())
    stranger = Agent(world.store, "stranger")
    stranger.node_id = world.agent.node_id
    refused = {
        "nothing": {},
        "an operator's token": operator,
        "another image": signed(world.agent, other["digest"]),
        "another method": signed(world.agent, made["digest"], method="PUT"),
        "an old one": signed(world.agent, made["digest"], now - 301),
        "one from tomorrow": signed(world.agent, made["digest"], now + 400),
        "a stranger": signed(stranger, made["digest"]),
        "a removed node": signed(world.removed, made["digest"]),
        "no number": {**signed(world.agent, made["digest"]), node_request.TIME: "1e9"},
        "another time": {**signed(world.agent, made["digest"]), node_request.TIME: str(now - 1)},
    }
    for what, headers in refused.items():
        assert http.get(where, headers=headers).status_code == 401, what
    draft = described(http, operator, catalog.new_slug())
    answer = http.get(node_request.image_path(draft["digest"]), headers=signed(world.agent, draft["digest"]))
    assert answer.status_code == 404


def test_the_doctor_misses_images(world: World, http: httpx.Client, operator: dict[str, str]) -> None:
    there, lost = published(http, operator, catalog.new_slug()), catalog.publish(world.store, "lost", "1")
    found = {item["name"]: item for item in http.get(f"{API}/platform/doctor", headers=operator).json()["findings"]}
    assert found["runtimes"]["level"] == "failure"
    assert there["name"] not in found["runtimes"]["problem"]
    for bundle in world.store.transact(runtime_bundles.visible, None, ("published",)):
        (IMAGES / f"{bundle.digest}.erofs").touch()
    found = {item["name"]: item for item in http.get(f"{API}/platform/doctor", headers=operator).json()["findings"]}
    assert found["runtimes"]["level"] == "ok"
    (IMAGES / f"{lost.digest}.erofs").unlink()
    found = {item["name"]: item for item in http.get(f"{API}/platform/doctor", headers=operator).json()["findings"]}
    assert found["runtimes"]["problem"] == "This server does not have: lost:1."


def test_images_that_nobody_needs_are_listed_and_removed(http: httpx.Client, operator: dict[str, str]) -> None:
    """What is published stays, however old its file is."""
    kept = published(http, operator, catalog.new_slug())
    orphan = hashlib.sha256(catalog.new_slug().encode()).hexdigest()
    IMAGES.joinpath(f"{orphan}.erofs").write_bytes(b"12345")
    for digest in (orphan, kept["digest"]):
        os.utime(IMAGES / f"{digest}.erofs", (0, 0))
    listed = http.get(f"{API}/runtime-images/unused", headers=operator).json()
    found = {item["digest"]: item for item in listed["items"]}
    assert found[orphan] == {"digest": orphan, "size_bytes": 5, "kind": "image", "name": ""}
    assert kept["digest"] not in found
    assert IMAGES.joinpath(f"{orphan}.erofs").exists()
    once = {**operator, "Idempotency-Key": orphan}
    removed = http.post(f"{API}/runtime-images/collect", json={}, headers=once)
    assert orphan in {item["digest"] for item in removed.json()["items"]}
    assert not [file for file in IMAGES.iterdir() if orphan in file.name]
    assert IMAGES.joinpath(f"{kept['digest']}.erofs").exists()
    assert http.post(f"{API}/runtime-images/collect", json={}, headers=once).json() == removed.json()


def test_a_flipped_byte_on_the_server_is_found_and_healed(
    world: World, http: httpx.Client, operator: dict[str, str]
) -> None:
    made = published(http, operator, catalog.new_slug())
    path, image = f"{API}/runtime-bundles/{made['id']}", catalog.content(made["slug"], "1.0")
    well = http.post(f"{path}/verify", headers=operator)
    assert well.status_code == 200, well.text
    assert well.json() == {
        "bundle_id": made["id"], "name": made["name"], "digest": made["digest"], "size_bytes": 100, "state": "intact",
    }  # fmt: skip
    file = IMAGES / f"{made['digest']}.erofs"
    file.write_bytes(image[:-1] + b"?")
    assert described(http, operator, made["slug"])["received_bytes"] == 100  # a deploy would send nothing
    once = {**operator, "Idempotency-Key": made["id"]}
    assert http.post(f"{path}/verify", headers=once).json()["state"] == "damaged"
    assert http.post(f"{path}/verify", headers=operator).json()["state"] == "missing"
    assert http.post(f"{path}/verify", headers=once).json()["state"] == "damaged"
    where = node_request.image_path(made["digest"])
    assert http.get(where, headers=signed(world.agent, made["digest"])).json()["code"] == "image_not_here"
    again = described(http, operator, made["slug"])
    assert (again["state"], again["received_bytes"]) == ("published", 0)
    assert http.put(where, content=image, headers=operator).json()["complete"]
    assert http.post(f"{path}/verify", headers=operator).json()["state"] == "intact"
    assert http.get(where, headers=signed(world.agent, made["digest"])).content == image
    for person in ("viewer", "admin"):
        assert http.post(f"{path}/verify", headers=world.people[person].headers).status_code == 403, person


def test_what_the_server_has_lost_is_refused_until_it_is_sent_again(
    world: World, http: httpx.Client, operator: dict[str, str]
) -> None:
    """Its node could only ask for ever. A machine beside one that has it needs no server for it."""
    made = published(http, operator, catalog.new_slug())
    editor, slug, image = world.people["editor"].headers, made["slug"], catalog.content(made["slug"], "1.0")
    names = [catalog.new_slug() for _ in range(3)]
    body = {"offer": "h100-1", "project": world.own.project.id}
    for name in names[:2]:
        assert http.post(f"{API}/allocations", json={**body, "name": name}, headers=editor).status_code == 202
    world.settle()
    (IMAGES / f"{made['digest']}.erofs").write_bytes(image[:-1] + b"?")
    assert http.post(f"{API}/runtime-bundles/{made['id']}/verify", headers=operator).json()["state"] == "damaged"

    def apply(name: str) -> httpx.Response:
        asked = {"runtime_bundle_slug": slug}
        return http.post(f"{API}/allocations/{name}/runtime-bundles", json=asked, headers=editor)

    launch = {**body, "name": names[2], "runtime_bundle_slug": slug}
    for refused in (apply(names[0]), http.post(f"{API}/allocations", json=launch, headers=editor)):
        assert (refused.status_code, refused.json()["code"]) == (409, "image_lost"), refused.text
        assert f"gpuaas runtime deploy {made['name']}" in refused.json()["hint"]
    assert http.get(f"{API}/allocations/{names[2]}", headers=editor).status_code == 404
    where = f"{API}/runtime-images/{made['digest']}"
    assert http.put(where, content=image, headers=operator).json()["complete"]
    assert not [file.name for file in IMAGES.iterdir() if made["digest"] in file.name and file.name.startswith(".")]
    assert apply(names[0]).status_code == 202
    world.settle()
    (IMAGES / f"{made['digest']}.erofs").write_bytes(image[:-1] + b"?")
    assert http.post(f"{API}/runtime-bundles/{made['id']}/verify", headers=operator).json()["state"] == "damaged"
    assert apply(names[1]).status_code == 202, "its node has it"
    world.settle()
    for name in names[:2]:
        http.post(f"{API}/allocations/{name}/release", json={"confirm": name}, headers=editor)
    world.settle()


def test_a_builder_publishes(world: World, http: httpx.Client) -> None:
    """From the manifest to the catalog, with what is on its way; and nothing of what operators do."""
    builder, slug = world.people["platform_builder"].headers, catalog.new_slug()
    draft = described(http, builder, slug)
    assert http.get(f"{API}/runtime-bundles/{draft['id']}", headers=builder).json()["state"] == "draft"
    assert published(http, builder, slug)["state"] == "published"
    assert http.post(f"{API}/runtime-bundles/{draft['id']}/deprecate", headers=builder).json()["state"] == "deprecated"
    for refused in ("/nodes", "/runtime-images/unused", "/users"):
        assert http.get(f"{API}{refused}", headers=builder).status_code == 403, refused
