"""Locks: every file by digest, exactly what was asked for, or a refusal."""

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.tags import Tag

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.lock import archive, npm, pypi
from gpuaas.runtimes.lock.deb import Apt
from gpuaas.runtimes.lock.lockfile import Artifact, Lock, lock_digest
from gpuaas.runtimes.recipe import Source
from gpuaas.runtimes.settings import Settings
from runtimes.registry import Registry, registry

INTEGRITY = "sha512-" + base64.b64encode(b"\1" * 64).decode()


@pytest.fixture
def web() -> Iterator[Registry]:
    with registry() as found:
        yield found


def package(web: Registry, name: str, versions: dict[str, dict[str, Any]]) -> None:
    said = {
        version: {"dist": {"tarball": f"{web.url}/{name}-{version}.tgz", "integrity": INTEGRITY}, **more}
        for version, more in versions.items()
    }
    web.files[f"/{name}"] = json.dumps({"versions": said}).encode()


def locked(web: Registry, *items: str) -> list[Artifact]:
    return npm.lock(Source("npm", items), Settings(npm_registry=web.url))


def test_npm_takes_the_newest_of_a_line(web: Registry) -> None:
    package(web, "node", {"18.2.0": {}, "18.10.1": {}, "19.0.0": {}, "180.0.0": {}, "18.11.0-rc.1": {}})
    (found,) = locked(web, "node@18")
    assert (found.version, found.digest) == ("18.10.1", f"sha512:{'01' * 64}")
    assert locked(web, "node@18.2")[0].version == "18.2.0"


@pytest.mark.acceptance("D19")
@pytest.mark.parametrize("wanted", ["node@17", "node@18.3", "node@1"])
def test_npm_never_takes_another(web: Registry, wanted: str) -> None:
    package(web, "node", {"18.2.0": {}, "19.0.0": {}})
    with pytest.raises(Problem, match=r"npm has no node .*18\.2\.0, 19\.0\.0"):
        locked(web, wanted)


def test_npm_packages_must_be_whole(web: Registry) -> None:
    package(web, "a", {"1.0.0": {"dependencies": {"b": "1", "c": "1"}, "bundleDependencies": ["b"]}})
    with pytest.raises(Problem, match="needs c, which it does not bring"):
        locked(web, "a@1")
    package(web, "a", {"1.0.0": {"dist": {"tarball": "x", "shasum": "y"}}})
    with pytest.raises(Problem, match="no sha512"):
        locked(web, "a@1")
    with pytest.raises(Problem, match="answered 404"):
        locked(web, "missing@1")


def test_a_registry_that_is_not_there() -> None:
    with pytest.raises(Problem) as refused:
        npm.lock(Source("npm", ("a@1",)), Settings(npm_registry="http://127.0.0.1:9"))
    assert (refused.value.code, refused.value.status) == ("index_unreachable", 503)
    assert "127.0.0.1:9" in refused.value.message


def wheel(directory: Path, name: str, version: str, tag: str = "py3-none-any", *needs: str) -> Path:
    file = directory / f"{name}-{version}-{tag}.whl"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    about += "".join(f"Requires-Dist: {each}\n" for each in needs)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as out:
        out.writestr(f"{info}/METADATA", about)
        out.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        out.writestr(f"{info}/RECORD", "")
    return file


def wheels(tmp_path: Path, settings: Settings, *items: str, into: str = "") -> list[Artifact]:
    source = Source("pypi", items, into=into)
    return pypi.lock([source], "bin/python3.11", "amd64", settings, tmp_path / "cache", tmp_path)


def test_wheels_from_a_directory_and_nothing_else(tmp_path: Path, web: Registry) -> None:
    """An air-gapped site: an index without anything, and a directory of wheels."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    one, two = wheel(directory, "one", "1.0", "py3-none-any", "two>=2"), wheel(directory, "two", "2.5")
    wheel(directory, "two", "3.0", "cp39-cp39-win_amd64")
    site = Settings(pypi_index=f"{web.url}/simple", find_links=(str(directory),))
    found = {artifact.name: artifact for artifact in wheels(tmp_path, site, "one")}
    assert found["one"].digest == f"sha256:{hashlib.sha256(one.read_bytes()).hexdigest()}"
    assert (found["two"].version, found["two"].file) == ("2.5", two.name)
    assert [artifact.name for artifact in wheels(tmp_path, site, "one", into="x")] == ["one"], "only unpacked: alone"


def test_wheels_that_cannot_be_had(tmp_path: Path, web: Registry) -> None:
    directory = tmp_path / "wheels"
    directory.mkdir()
    wheel(directory, "one", "1.0", "py3-none-any", "two>=2")
    site = Settings(pypi_index=f"{web.url}/simple", find_links=(str(directory),))
    with pytest.raises(Problem) as refused:
        wheels(tmp_path, site, "one")
    assert refused.value.code == "cannot_lock"
    assert "two" in refused.value.detail
    source = Source("pypi", ("missing",), index="pytorch-cpu")
    with pytest.raises(Problem) as refused:
        pypi.lock([source], "bin/python3.11", "amd64", site, tmp_path / "cache", tmp_path)
    assert "no index called pytorch-cpu" in refused.value.hint
    with pytest.raises(Problem, match="Wheels need a Python"):
        pypi.lock([Source("pypi", ("one",))], "", "amd64", site, tmp_path / "cache", tmp_path)


def test_the_best_wheel_of_several() -> None:
    suitable = pypi.tags("3.11", "amd64")
    order = [
        Tag("cp311", "cp311", "manylinux_2_28_x86_64"),
        Tag("cp311", "cp311", "manylinux_2_17_x86_64"),
        Tag("cp311", "abi3", "manylinux_2_17_x86_64"),
        Tag("py3", "none", "manylinux_2_17_x86_64"),
        Tag("py3", "none", "any"),
    ]
    assert sorted(order, key=lambda tag: suitable[tag]) == order
    for foreign in ("manylinux_2_39_x86_64", "musllinux_1_2_x86_64", "win_amd64", "manylinux_2_28_aarch64"):
        assert Tag("cp311", "cp311", foreign) not in suitable
    assert Tag("cp311", "cp311", "manylinux_2_28_aarch64") in pypi.tags("3.11", "arm64")


def test_archives() -> None:
    (found,) = archive.lock(Source("archive", ("https://x.org/d/a.tar.gz?x=1",), into="a", sha256="0" * 64, strip=2))
    assert (found.file, found.digest, found.into, found.strip) == ("a.tar.gz", f"sha256:{'0' * 64}", "a", 2)


def test_where_a_file_was_found_does_not_count() -> None:
    artifact = Artifact("npm", "a", "1.0.0", "a.tgz", "sha512:00", "https://one/a.tgz", 5)
    lock = Lock("a:1", "amd64", "r", (), (), (artifact,))
    moved = msgspec.structs.replace(artifact, url="https://two/a.tgz", size=0)
    changed = msgspec.structs.replace(artifact, digest="sha512:01")
    assert lock_digest(msgspec.structs.replace(lock, artifacts=(moved,))) == lock_digest(lock)
    assert lock_digest(msgspec.structs.replace(lock, artifacts=(changed,))) != lock_digest(lock)


@pytest.mark.acceptance("D07")
def test_apt_uses_nothing_of_this_host_and_says_what_is_missing(tmp_path: Path) -> None:
    apt = Apt(tmp_path, "bookworm", "", "amd64", Settings(debian_mirror="http://127.0.0.1:9/debian"))
    text = next(tmp_path.rglob("apt.conf")).read_text()
    assert "Post-Invoke" not in text
    assert "Pre-Install" not in text
    with pytest.raises(Problem) as refused:
        apt.update()
    assert refused.value.code == "index_unreachable"
    with pytest.raises(Problem, match="cannot install nothing-like-this"):
        apt.closure(["nothing-like-this"])
    with pytest.raises(Problem, match="needs a mirror called nvidia"):
        Apt(tmp_path, "bookworm", "nvidia", "amd64", Settings())
