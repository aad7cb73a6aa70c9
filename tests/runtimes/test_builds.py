"""Real builds, from the registries that this machine reaches, kept between runs.

The first run, on two cores that had three times as much to do: python:3.11+ml 79 s (292 MB), java:17 33 s (224 MB),
node:18 20 s (82 MB), jupyter 55 s (150 MB), pytorch 46 s (528 MB). Of that, 3-11 s are for the image itself.
"""

import json
from pathlib import Path

import msgspec
import pytest

from cli.conftest import Gpuaas
from gpuaas.runtimes import tools
from gpuaas.runtimes.build.builder import Built, build
from gpuaas.runtimes.build.phases import PHASES, Progress
from gpuaas.runtimes.build.sandbox import Sandbox
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.lock.lockfile import Lock, lock_digest
from gpuaas.runtimes.shelf import Shelf
from gpuaas.runtimes.tree import Entry
from runtimes.builds import SHELF, alone_with, find_links, host, needs_tools, site, skip_without_sources

pytestmark = [needs_tools, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def gpuaas(tmp_path: Path) -> Gpuaas:
    found = Gpuaas(tmp_path, "http://127.0.0.1:9")
    found.environment.setdefault("UV_FIND_LINKS", " ".join(find_links()))
    return found


def built(gpuaas: Gpuaas, name: str) -> dict[str, object]:
    with alone_with(Library().get(name)):
        said = gpuaas("runtime", "build", name, "--json", "--state-dir", str(SHELF.path.parent))
    assert said.code == 0, said.err
    (found,) = said.json["items"]
    return dict(found)


def papers(name: str) -> Path:
    bundle, _, version = Library().find(name).id.partition(":")
    sha256 = SHELF.built(bundle, version)
    assert sha256 is not None
    return SHELF.bundle(bundle, version) / sha256


def works(gpuaas: Gpuaas, name: str) -> None:
    """In the image: interpreters start, packages import, and what jobs get mounted is there."""
    said = gpuaas("runtime", "test", name, "--json", "--state-dir", str(SHELF.path.parent))
    assert said.code == 0, said.err
    assert said.json["items"][0]["checks"] == len(Library().get(name).verify)
    said = gpuaas("runtime", "verify", name, "--json", "--state-dir", str(SHELF.path.parent))
    assert (said.code, said.json["items"][0]["intact"]) == (0, True)
    files = {each.path for each in msgspec.json.decode((papers(name) / "files.json").read_bytes(), type=list[Entry])}
    for mount in Library().get(name).mounts:
        assert {mount.source, *(f"{mount.source}/{entry}" for entry in mount.selective)} <= files


@pytest.mark.acceptance("D03")
def test_python_with_packages(gpuaas: Gpuaas) -> None:
    found = built(gpuaas, "python-3.11-ml")
    works(gpuaas, "python:3.11+ml")
    place = papers("python:3.11+ml")
    assert place.name == found["sha256"]
    lock = msgspec.json.decode((place / "lock.json").read_bytes(), type=Lock)
    names = {artifact.name for artifact in lock.artifacts}
    assert {"numpy", "pandas", "scikit-learn", "scipy", "matplotlib", "python3.11"} <= names
    sbom = json.loads((place / "sbom.json").read_bytes())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
    assert {component["name"] for component in sbom["components"]} == names
    assert all(component["hashes"][0]["content"] for component in sbom["components"])
    files = {each.path: each for each in msgspec.json.decode((place / "files.json").read_bytes(), type=list[Entry])}
    assert "lib/python3/dist-packages/numpy/__pycache__/__init__.cpython-311.pyc" in files
    assert not [path for path in files if path.startswith(("usr/", "var/", "tmp/"))]
    assert not [path for path in files if Path(path).name in ("dpkg", "apt-get", "patchelf", "uv", "gcc")], (
        "build tools"
    )
    text = (place / "build.log").read_text()
    assert "uv pip install" in text
    assert "import numpy, pandas" in text


@pytest.mark.acceptance("D07", "D18")
def test_the_same_lock_gives_the_same_image_on_an_untouched_host(tmp_path: Path) -> None:
    """Once on the shelf that stays, once from the same files on a new one, where it is built in every run: Debian's
    packages and a wheel. Every phase is told."""
    recipe, found = Library().get("python:3.11"), site()
    first = build(recipe, tools.architecture(), found, SHELF)
    other = Shelf(tmp_path / "other")
    other.make()
    (other.path / "artifacts").rmdir()
    (other.path / "artifacts").symlink_to(SHELF.path / "artifacts")
    lock = SHELF.lock("python", "3.11", tools.architecture())
    target = other.lock("python", "3.11", tools.architecture())
    target.parent.mkdir(parents=True)
    target.write_bytes(lock.read_bytes())
    told: list[Progress] = []
    before = host()
    second: Built = build(recipe, tools.architecture(), found, other, told.append)
    after = host()
    assert second.new
    log = (other.bundle("python", "3.11") / second.sha256 / "build.log").read_text()
    assert "$ patchelf bin/python3.11\n" in log
    assert "$ uv pip install 1 wheels\n" in log
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert not changed, f"the build changed the host: {sorted(changed)[:5]}"
    assert second.sha256 == first.sha256
    assert second.manifest == first.manifest
    kept = msgspec.json.decode((papers("python:3.11") / "lock.json").read_bytes(), type=Lock)
    assert lock_digest(kept) == first.manifest.lock
    assert all(artifact.digest for artifact in kept.everything)
    assert [each.phase for each in told if each.state == "running" and not each.message] == [name for name, _ in PHASES]
    assert {each.phase for each in told if each.state == "done"} == {name for name, _ in PHASES}


@pytest.mark.acceptance("D02", "D03", "D19")
def test_node_18_is_18(gpuaas: Gpuaas) -> None:
    built(gpuaas, "node:18")
    works(gpuaas, "node:18")
    lock = msgspec.json.decode((papers("node:18") / "lock.json").read_bytes(), type=Lock)
    (version,) = [artifact.version for artifact in lock.artifacts if artifact.name.startswith("node-linux")]
    assert version.startswith("18.")


@pytest.mark.acceptance("D02", "D03")
def test_java_17(gpuaas: Gpuaas) -> None:
    built(gpuaas, "java:17")
    works(gpuaas, "java:17")


@pytest.mark.acceptance("D03")
@pytest.mark.parametrize("name", ["pytorch", "jupyter"])
def test_large_ones(gpuaas: Gpuaas, name: str) -> None:
    skip_without_sources(Library().get(name))
    built(gpuaas, name)
    works(gpuaas, name)


def test_nothing_in_a_sandbox_writes_outside_or_reaches_the_network(tmp_path: Path) -> None:
    recipe = Library().get("python:3.11")
    build(recipe, tools.architecture(), site(), SHELF)
    (tmp_path / "tree").mkdir()
    lock = msgspec.json.decode((papers("python:3.11") / "lock.json").read_bytes(), type=Lock)
    from gpuaas.runtimes.build.base import ensure_base

    sandbox = Sandbox(ensure_base(lock.base, SHELF, tmp_path), tmp_path / "tree", recipe.root)
    script = """
    ! touch /usr/x 2>/dev/null; ! touch /etc/x 2>/dev/null; ! touch here 2>/dev/null
    [ "$PWD" = /opt/gpuaas/runtimes/python/3.11 ]
    [ "$(ls /sys/class/net 2>/dev/null | wc -l)" -le 1 ]; ! (exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null
    [ "$(grep -c : /proc/net/dev)" = 1 ]
    [ "$(cat /proc/self/status | sed -n 's/^CapEff:[[:space:]]*//p')" = 0000000000000000 ]
    [ ! -e /root ] && [ ! -e /home ] && [ ! -e /var ]
    """
    sandbox.run(["/bin/bash", "-e", "-c", script], what="escape")
    sandbox.run(["/bin/sh", "-e", "-c", "touch made"], writable=True)
    assert [path.name for path in (tmp_path / "tree").iterdir()] == ["made"]
