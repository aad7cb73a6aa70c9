"""A runtime sent to a real registry: it is there as an artifact, once, and only for those who may."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Gpuaas
from gpuaas.kit.errors import Problem
from gpuaas.kit.registry import MANIFEST, Place, Registry
from gpuaas.runtimes.bundlefile import take_in
from gpuaas.runtimes.manifest import Manifest
from gpuaas.runtimes.push import ARTIFACT, push
from gpuaas.runtimes.shelf import Shelf
from oci import credentials, needs_registry, registry
from runtimes.builds import needs_tools
from runtimes.bundle import Bundle

pytestmark = [needs_registry, needs_tools]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "state" / "runtimes")


@pytest.fixture
def manifest(tmp_path: Path, shelf: Shelf) -> Manifest:
    return take_in(Bundle(tmp_path / "made", "tool", "1.0+ml").write(tmp_path / "tool.tar"), shelf)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Registry]:
    with registry(tmp_path / "registry", login=True) as address:
        file = credentials(tmp_path / "config.json", address)
        yield Registry(Place.parse(f"{address}/team/runtimes"), file)


def read(registry: Registry, digest: str) -> bytes:
    with registry.blob(digest) as answer:
        return answer.read()


def test_what_is_pushed_is_an_artifact_and_is_sent_once(shelf: Shelf, manifest: Manifest, there: Registry) -> None:
    image = manifest.layers[0]
    done = push("tool", "1.0+ml", shelf, there, lambda said: None)
    assert done.reference == f"{there.place}:tool-1.0_ml-amd64"
    assert (done.sha256, done.runtime) == (image.sha256, "tool:1.0+ml")
    assert done.sent_bytes > image.size
    with there._ask("GET", "manifests/tool-1.0_ml-amd64", {"Accept": MANIFEST}) as answer:
        assert answer.headers["Content-Type"] == MANIFEST
        artifact = json.load(answer)
    assert artifact["artifactType"] == ARTIFACT
    place = shelf.bundle("tool", "1.0+ml") / image.sha256
    assert read(there, artifact["config"]["digest"]) == (place / "manifest.json").read_bytes()
    layers = {each["mediaType"].rpartition("runtime.")[2]: each for each in artifact["layers"]}
    assert set(layers) == {"erofs", "lock.v1+json", "sbom.v1+json", "files.v1+json"}
    assert (layers["erofs"]["digest"], layers["erofs"]["size"]) == (f"sha256:{image.sha256}", image.size)
    assert read(there, f"sha256:{image.sha256}") == shelf.image(image.sha256).read_bytes()
    assert read(there, layers["sbom.v1+json"]["digest"]) == (place / "sbom.json").read_bytes()
    assert push("tool", "1.0+ml", shelf, there, lambda said: None).sent_bytes == 0


def test_who_may_not_write_there_is_told(shelf: Shelf, manifest: Manifest, there: Registry, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="it answered 401") as refused:
        push("tool", "1.0+ml", shelf, Registry(there.place), lambda said: None)
    assert "--credentials" in refused.value.hint
    wrong = credentials(tmp_path / "wrong.json", there.place.host, password="other")
    with pytest.raises(Problem, match="it answered 401"):
        push("tool", "1.0+ml", shelf, Registry(there.place, wrong), lambda said: None)


def test_what_is_damaged_is_not_sent(shelf: Shelf, manifest: Manifest, there: Registry) -> None:
    image = shelf.image(manifest.layers[0].sha256)
    image.chmod(0o644)
    image.write_bytes(b"?" + image.read_bytes()[1:])
    with pytest.raises(Problem, match="is damaged"):
        push("tool", "1.0+ml", shelf, there, lambda said: None)
    assert not there.has_blob(f"sha256:{manifest.layers[0].sha256}")


def test_by_the_command_line(manifest: Manifest, there: Registry, tmp_path: Path) -> None:
    gpuaas = Gpuaas(tmp_path, "http://127.0.0.1:1")  # no server has a part in it
    to = (
        "--to",
        str(there.place),
        "--credentials",
        str(tmp_path / "config.json"),
        "--state-dir",
        str(tmp_path / "state"),
    )
    (done,) = gpuaas("runtime", "push", "tool-1.0-ml", *to, "--json").json["items"]
    assert done["reference"] == f"{there.place}:tool-1.0_ml-amd64"
    assert "all of it was there" in gpuaas("runtime", "push", "tool", *to).out
    assert gpuaas("runtime", "push", "node:18", *to).code == 4
    gone = gpuaas("runtime", "push", "tool", "--to", "127.0.0.1:1/team", "--state-dir", str(tmp_path / "state"))
    assert gone.code == 6
    assert "127.0.0.1:1/team does not take tool:1.0+ml" in gone.err
