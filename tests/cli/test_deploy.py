"""`gpuaas runtime deploy` against a real server: what is built here is there, once, whatever was lost on the way."""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.server import IMAGES, serve
from cli.conftest import Gpuaas
from control import catalog
from gpuaas.cli.runtime_catalog import publish
from gpuaas.cli.session import Session
from gpuaas.control.bootstrap import bootstrap
from gpuaas.runtimes.shelf import Shelf
from runtimes.builds import SHELF, needs_tools


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> Iterator[Gpuaas]:
    made = bootstrap(database_url, email="ada@example.org", password="correct horse", org="lab", project="p")
    with serve(database_url) as replica:
        person = Gpuaas(tmp_path, replica.url)
        person.environment["GPUAAS_TOKEN"] = made.token
        yield person


@pytest.fixture
def session(operator: Gpuaas, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    for name in ("GPUAAS_SERVER", "GPUAAS_TOKEN", "HOME"):
        monkeypatch.setenv(name, operator.environment[name])
    made = Session(json=True)
    yield made
    made.close()


def built(directory: Path, slug: str, version: str) -> tuple[Shelf, str]:
    """As if a build had been here."""
    image, shelf = catalog.content(slug, version, 5000), Shelf(directory / "runtimes")
    digest = hashlib.sha256(image).hexdigest()
    shelf.make()
    place = shelf.bundle(slug, version) / digest
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(json.dumps(catalog.manifest(slug, version, image)))
    (place.parent / "built").write_text(f"{digest}\n")
    shelf.image(digest).parent.mkdir(parents=True, exist_ok=True)
    shelf.image(digest).write_bytes(image)
    return shelf, digest


def test_what_is_built_is_published_once(session: Session, tmp_path: Path) -> None:
    slug = catalog.new_slug()
    shelf, digest = built(tmp_path, slug, "1")
    bundle = publish(session, slug, "1", shelf)
    assert (bundle.state, bundle.digest) == ("published", digest)
    kept = IMAGES / f"{digest}.erofs"
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == digest
    assert publish(session, slug, "1", shelf).id == bundle.id
    kept.unlink()  # the server's disk was lost
    again = publish(session, slug, "1", shelf)
    assert (again.id, again.state) == (bundle.id, "published")
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == digest


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_recipe_is_built_and_published_in_one_go(operator: Gpuaas, tmp_path: Path) -> None:
    """Only the base comes from Debian, and is shared with the other builds."""
    SHELF.make()
    state = tmp_path / "state"
    (state / "runtimes").mkdir(parents=True)
    for name in ("artifacts", "apt", "bases"):
        (state / "runtimes" / name).symlink_to(SHELF.path / name)
    (tmp_path / "tool").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "tool").chmod(0o755)
    with tarfile.open(tmp_path / "tool.tar.gz", "w:gz") as out:
        out.add(tmp_path / "tool", "tool-1/bin/tool")
    packed = tmp_path / "tool.tar.gz"
    sha256 = hashlib.sha256(packed.read_bytes()).hexdigest()
    source = f"{{archive: '{packed.as_uri()}', sha256: {sha256}, into: ., strip: 1}}"
    recipe = tmp_path / "runtime.yml"
    recipe.write_text(f"name: mytool\nversion: 1\nsources: [{source}]\nverify: ['bin/tool']\n")
    arguments = ("runtime", "deploy", str(recipe), "--state-dir", str(state), "--json")
    said = operator(*arguments)
    assert said.code == 0, said.err
    (item,) = said.json["items"]
    assert (item["name"], item["state"], item["support"]) == ("mytool:1", "published", "custom")
    assert operator(*arguments).json["items"][0]["id"] == item["id"]
    assert "mytool:1" in operator("runtime", "list", "--catalog").out
