"""`gpuaas runtime index|source|pull`: from one site's shelf to another site's server, by the command line."""

import json
import shutil
from pathlib import Path

import pytest

from cli.conftest import Gpuaas
from gpuaas.runtimes import bundlefile
from gpuaas.runtimes.shelf import Shelf
from runtimes.bundle import Bundle
from sdk import samples
from sdk.playback import Answer, Playback

pytestmark = pytest.mark.skipif(shutil.which("mkfs.erofs") is None, reason="not installed: erofs-utils")
KEYS = ("root-1", "root-2", "bundles", "fresh")


class Site:
    """A publisher's machine, a mirror, and an operator's machine."""

    def __init__(self, gpuaas: Gpuaas, work: Path) -> None:
        self.gpuaas, self.work, self.mirror = gpuaas, work, work / "mirror"
        self.ours, self.theirs = ("--state-dir", str(work / "ours")), ("--state-dir", str(work / "theirs"))
        for key in KEYS:
            assert gpuaas("runtime", "index", "key", self.file(key)).code == 0
        self.build("1.0")

    def file(self, name: str) -> str:
        return str(self.work / name)

    def build(self, version: str) -> None:
        made = Bundle(self.work / f"build-{version}", version=version).write(self.work / f"{version}.tar")
        bundlefile.take_in(made, Shelf(self.work / "theirs" / "runtimes"))

    def create(self, *keys: str) -> dict[str, list[str]]:
        roles = ["--root", self.file("root-1.pub"), "--root", self.file("root-2.pub"), "--root-threshold", "2",
                 "--bundles", self.file("bundles.pub"), "--freshness", self.file("fresh.pub")]  # fmt: skip
        said = self.gpuaas("runtime", "index", "create", str(self.mirror), *roles, *self.signed(*keys), "--json")
        assert said.code == 0, said.err
        return dict(said.json)

    def signed(self, *keys: str) -> list[str]:
        return [part for key in keys for part in ("--key", self.file(key))]

    def index(self, *arguments: str, code: int = 0) -> dict[str, list[str]]:
        said = self.gpuaas("runtime", "index", arguments[0], str(self.mirror), *arguments[1:], "--json")
        assert said.code == code, said.err
        return dict(said.json if code == 0 else json.loads(said.err))

    def pin(self) -> None:
        root = str(self.mirror / "metadata" / "1.root.json")
        said = self.gpuaas("runtime", "source", "add", "vendor", str(self.mirror), "--root", root, *self.ours)
        assert said.code == 0, said.err
        assert "root 1, 2 of 2 keys" in said.out
        assert "sha256" in said.out


@pytest.fixture
def site(gpuaas: Gpuaas, tmp_path: Path) -> Site:
    return Site(gpuaas, tmp_path)


def test_a_key_is_private_and_never_overwritten(site: Site, gpuaas: Gpuaas, tmp_path: Path) -> None:
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "fresh").read_bytes()
    again = gpuaas("runtime", "index", "key", str(tmp_path / "fresh"))
    assert again.code == 5
    assert "never overwritten" in again.err
    assert (tmp_path / "fresh").read_bytes() == before


def test_holders_of_keys_sign_one_after_the_other(site: Site) -> None:
    """Nothing counts before enough of them have; each signs where their key is."""
    assert site.create()["published"] == []
    waits = site.index("sign", *site.signed("root-1"))
    assert waits["published"] == []
    assert waits["waits"][0].startswith("root 1: 1 more of the keys")
    assert site.index("sign", *site.signed("root-2"))["published"] == ["root 1"]
    assert site.index("sign", *site.signed("bundles"))["published"] == ["bundles 1"]
    assert site.index("sign", *site.signed("fresh")) == {"published": ["freshness 1"], "waits": []}
    shown = site.index("show")
    assert [each["role"] for each in shown["roles"]] == ["root", "bundles", "freshness"]  # type: ignore[index]
    assert shown["waiting"] == []


def test_published_on_one_site_and_deployed_on_another(site: Site, gpuaas: Gpuaas, server: Playback) -> None:
    site.create(*KEYS)
    added = site.index("add", "tool:1.0", *site.signed("bundles", "fresh"), *site.theirs)
    assert added == {"published": ["bundles 2", "freshness 2"], "waits": []}
    site.pin()
    listed = gpuaas("runtime", "list", "--from", "vendor", "--json", *site.ours).json["items"]
    assert [(each["bundle"], each["version"], each["architecture"]) for each in listed] == [("tool", "1.0", "amd64")]
    unknown = gpuaas("runtime", "pull", "--from", "vendor", "tol:1.0", *site.ours)
    assert unknown.code == 4
    assert "tool:1.0" in unknown.err, "the nearest that it has"
    taken = gpuaas("runtime", "pull", "--from", "vendor", "tool", *site.ours)
    assert (taken.code, "tool:1.0 is here" in taken.out) == (0, True), taken.err
    assert "here" in gpuaas("runtime", "list", "--from", "vendor", *site.ours).out

    image = Shelf(site.work / "ours" / "runtimes").built("tool", "1.0")
    user = {"id": "us-x", "email": "ada@example.org", "name": "Ada", "platform_role": "platform_ops",
            "created_at": samples.AT, "disabled_at": None, "kind": "person"}  # fmt: skip
    who = {"user": user, "token_id": "tk-x", "scopes": ["*"], "orgs": [], "projects": []}
    server.on("GET", "/api/v1/whoami", Answer(200, who))
    there = samples.runtime_bundle(state="published")
    there |= {"received_bytes": there["size_bytes"]}
    server.on("POST", "/api/v1/runtime-bundles", Answer(201, there))
    deployed = gpuaas("runtime", "deploy", "--from", "vendor", "tool:1.0", *site.ours)
    assert deployed.code == 0, deployed.err
    (sent,) = server.to("POST", "/api/v1/runtime-bundles")
    manifest = json.loads(sent.body)["manifest"]
    assert (manifest["bundle"], manifest["layers"][0]["sha256"]) == ("tool", image)
    assert gpuaas("runtime", "deploy", "--from", "vendor", "--all", *site.ours).code == 2


def test_deploy_from_a_source_refuses_before_it_asks_the_server_for_more(
    site: Site, gpuaas: Gpuaas, server: Playback
) -> None:
    said = gpuaas("runtime", "pull", "--from", str(site.mirror), "tool", *site.ours)
    assert said.code == 4
    assert "not pinned here" in said.err
    assert "--root FILE" in said.err
    assert server.asked == []


def test_sources_are_listed_moved_and_forgotten(site: Site, gpuaas: Gpuaas) -> None:
    site.create(*KEYS)
    site.pin()
    root = str(site.mirror / "metadata" / "1.root.json")
    assert gpuaas("runtime", "source", "add", "vendor", "/x", "--root", root, *site.ours).code == 5
    moved = shutil.copytree(site.mirror, site.work / "disk")
    shutil.rmtree(site.mirror)
    gone = gpuaas("runtime", "list", "--from", "vendor", *site.ours)
    assert (gone.code, "source move" in gone.err) == (6, True)
    assert gpuaas("runtime", "source", "move", "vendor", str(moved), *site.ours).code == 0
    assert gpuaas("runtime", "list", "--from", "vendor", *site.ours).code == 0
    listed = gpuaas("runtime", "source", "list", "--json", *site.ours).json["items"]
    assert listed == [{"name": "vendor", "place": moved.as_uri()}]
    assert gpuaas("runtime", "source", "remove", "vendor", *site.ours).code == 2, "nobody is there to ask"
    assert gpuaas("runtime", "source", "remove", "vendor", "--yes", *site.ours).code == 0
    assert gpuaas("runtime", "source", "list", "--json", *site.ours).json["items"] == []
    assert not (site.work / "ours" / "runtimes" / "sources" / "vendor").exists()


def test_rotation(site: Site, gpuaas: Gpuaas) -> None:
    """Other keys: signed by the old and the new; whoever has the old ones alone signs for nobody."""
    site.create(*KEYS)
    site.pin()
    assert gpuaas("runtime", "index", "key", site.file("fresh-2")).code == 0
    rotated = site.index("rotate", "--freshness", site.file("fresh-2.pub"), *site.signed("root-1", "root-2"))
    assert rotated["published"] == ["root 2"]
    assert "freshness" in rotated["waits"][0]
    late = gpuaas("runtime", "list", "--from", "vendor", *site.ours)
    assert (late.code, "not signed by enough" in late.err) == (5, True)
    refused = site.index("sign", *site.signed("fresh"), code=2)
    assert "signs nothing in this index" in refused["detail"]
    assert site.index("sign", *site.signed("fresh-2"))["waits"] == []
    assert gpuaas("runtime", "list", "--from", "vendor", *site.ours).code == 0


def test_taken_out_and_changed(site: Site) -> None:
    site.create(*KEYS)
    site.build("2.0")
    site.index("add", "tool:1.0", "tool:2.0", *site.signed("bundles", "fresh"), *site.theirs)
    assert len(list(site.mirror.glob("targets/tool/*/*.tar"))) == 2
    site.index("remove", "tool:1.0", *site.signed("bundles", "fresh"))
    assert [file.parent.name for file in site.mirror.glob("targets/tool/*/*.tar")] == ["2.0"], "nobody needs the file"
    assert [each["version"] for each in site.index("show")["items"]] == ["2.0"]  # type: ignore[index]
    changed = Bundle(site.work / "changed", version="2.0")
    (changed.tree / "more").write_text("more")
    shelf = Shelf(site.work / "elsewhere" / "runtimes")
    bundlefile.take_in(changed.write(site.work / "changed.tar"), shelf)
    said = site.index("add", "tool:2.0", "--state-dir", str(site.work / "elsewhere"), code=5)
    assert "one content" in said["hint"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--root", "root-1.pub", "--bundles", "bundles.pub"), "Nobody can sign for freshness"),
        (("--root", "root-1.pub", "--root-threshold", "2"), "2 of 1 keys"),
        (("--root", "root-1.pub", "--root", "root-1.pub"), "twice"),
        (("--root", "root-1"), "no public key"),
        (("--root", "nothing.pub"), "No such file"),
        (("--root-threshold", "2"), "Which keys"),
    ],
)
def test_what_cannot_be(site: Site, gpuaas: Gpuaas, arguments: tuple[str, ...], why: str) -> None:
    said = [site.file(each) if not each.startswith("--") and not each.isdigit() else each for each in arguments]
    rest = [] if "freshness" in why else ["--bundles", site.file("bundles.pub"), "--freshness", site.file("fresh.pub")]
    done = gpuaas("runtime", "index", "create", str(site.mirror), *said, *rest)
    assert done.code == 2
    assert why in done.err


def test_a_root_that_is_none_is_not_pinned(site: Site, gpuaas: Gpuaas, tmp_path: Path) -> None:
    site.create("root-1", "bundles", "fresh")
    half = str(site.mirror / "waiting" / "root.json")
    done = gpuaas("runtime", "source", "add", "vendor", str(site.mirror), "--root", half, *site.ours)
    assert (done.code, "not signed by enough of its own keys" in done.err) == (2, True)
    (tmp_path / "x").write_text("{}")
    done = gpuaas("runtime", "source", "add", "vendor", str(site.mirror), "--root", str(tmp_path / "x"), *site.ours)
    assert (done.code, "no root of an index" in done.err) == (2, True)
