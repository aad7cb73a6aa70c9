"""`gpuaas runtime deploy` against a real server: what is built here is there, once, whatever was lost on the way."""

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.server import IMAGES, serve
from cli.conftest import Gpuaas, Said
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


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A shelf whose base comes from Debian, and is shared with the other builds."""
    SHELF.make()
    made = tmp_path / "state"
    (made / "runtimes").mkdir(parents=True)
    for name in ("artifacts", "apt", "bases"):
        (made / "runtimes" / name).symlink_to(SHELF.path / name)
    return made


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "tool").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "tool").chmod(0o755)
    with tarfile.open(tmp_path / "tool.tar.gz", "w:gz") as out:
        out.add(tmp_path / "tool", "tool-1/bin/tool")
    packed = tmp_path / "tool.tar.gz"
    sha256 = hashlib.sha256(packed.read_bytes()).hexdigest()
    source = f"{{archive: '{packed.as_uri()}', sha256: {sha256}, into: ., strip: 1}}"
    file = tmp_path / "runtime.yml"
    file.write_text(f"name: mytool\nversion: 1\nsources: [{source}]\nverify: ['bin/tool']\n")
    return file


@pytest.fixture
def worker(operator: Gpuaas, session: Session, tmp_path: Path) -> Gpuaas:
    """The CI of a project: an editor, and nothing on the platform."""
    accounts = session.client().service_accounts
    accounts.create("p", "ci", role="editor")
    made = Gpuaas(tmp_path, operator.environment["GPUAAS_SERVER"])
    made.environment["GPUAAS_TOKEN"] = accounts.create_token(
        "p", "ci", "t", scopes=["project_runtime.*", "read"]
    ).secret
    return made


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_recipe_of_ones_own_is_built_and_published_for_a_project(
    operator: Gpuaas, worker: Gpuaas, recipe: Path, state: Path
) -> None:
    arguments = ("runtime", "deploy", str(recipe), "--state-dir", str(state), "--json")
    planned = operator("runtime", "build", "--dry-run", *arguments[2:])
    assert [each["file"] for each in planned.json["items"][0]["artifacts"]] == ["tool.tar.gz"]
    assert not list((state / "runtimes" / "images").iterdir()), "nothing was built"
    undecided = operator(*arguments)
    assert (undecided.code, "Who is mytool:1 for?" in undecided.err) == (2, True)
    assert operator(*arguments, "--project", "q").code == 3, "nobody publishes for a project that they are not in"
    assert not list((state / "runtimes" / "images").iterdir()), "nor now"

    said = worker(*arguments, "--project", "p")
    assert said.code == 0, said.err
    (item,) = said.json["items"]
    assert (item["name"], item["state"], item["scope"]) == ("mytool:1", "published", "project")
    assert worker(*arguments, "--project", "p").json["items"][0]["id"] == item["id"]
    assert "mytool:1" in worker("runtime", "list", "--project", "p").out
    assert worker(*arguments, "--for-everybody").code == 3, "who works in a project publishes there only"
    taken = operator("runtime", "deprecate", "mytool", "--project", "p")
    assert "deprecated" in taken.out, taken.err
    assert worker("runtime", "delete", "mytool", "--project", "p").code == 0


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_script_deploys(operator: Gpuaas, recipe: Path, state: Path) -> None:
    """All the way: built, published for everybody, and there when it is asked for again."""
    script = Path(__file__).parents[2] / "scripts" / "deploy_runtimes.sh"
    command = [script, str(recipe), "--for-everybody", "--state-dir", str(state), "--json"]
    ids = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=operator.environment)
        assert done.returncode == 0, done.stderr
        (item,) = json.loads(done.stdout)["items"]
        assert (item["name"], item["state"], item["scope"]) == ("mytool:1", "published", "platform")
        ids.append(item["id"])
    assert ids[0] == ids[1]
    assert "mytool:1" in operator("runtime", "list", "--catalog").out


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_published_version_is_updated_by_its_next_revision(operator: Gpuaas, recipe: Path, state: Path) -> None:
    """What is there stays; another content is refused before it is built, unless it may be another revision."""

    def deployed(*more: str) -> Said:
        return operator("runtime", "deploy", str(recipe), "--for-everybody", "--state-dir", str(state), "--json", *more)

    def images() -> int:
        return len(list((state / "runtimes" / "images").iterdir()))

    (first,) = deployed().json["items"]
    (still,) = deployed("--relock").json["items"]
    assert (still["id"], still["version"], images()) == (first["id"], "1", 1), "nothing is newer"
    recipe.write_text(recipe.read_text() + "environment: {TOOL: newer}\n")
    refused = deployed()
    assert (refused.code, "Another recipe of mytool:1 is published" in refused.err, images()) == (2, True, 1)
    (newer,) = deployed("--relock").json["items"]
    assert (newer["version"], newer["state"], images()) == ("1-r2", "published", 2)
    (still,) = deployed().json["items"]
    assert still["id"] == newer["id"]
    for name in ("locks", "images", "bundles"):  # another machine, where nothing was ever built
        shutil.rmtree(state / "runtimes" / name)
    for _ in range(2):
        (still,) = deployed("--relock").json["items"]
        assert (still["id"], still["version"], images()) == (newer["id"], "1-r2", 0), "nothing is newer there either"
    assert operator("runtime", "info", "--catalog", "mytool:1", "--json").json["id"] == newer["id"]
    assert operator("runtime", "info", "--catalog", "mytool:1-r1", "--json").json["id"] == first["id"]
