"""Every shipped recipe can be locked, also those that no public registry can give: against a site of a test's own.

The site has what the registries had when record.py asked them: names, versions, files of both architectures and
dependencies, in empty wheels and lists without files. A package that is called otherwise, or has no wheel for arm64, is
noticed here, offline and in the same way on every machine.
"""

import json
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

RECORDED = {name: json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())
            for name in ("debian", "npm", "pypi")}  # fmt: skip
BOTH = ("amd64", "arm64")

# What record.py could not reach, as its publishers' lists name it: what it depends on.
NOBLE = {
    "python3.12": "libpython3.12-stdlib, media-types, mailcap",
    "python3.12-venv": "python3.12, python3-setuptools-whl, python3-pip-whl",
    "libpython3.12-stdlib": "libpython3.12-minimal, libbz2-1.0, libc6, libcrypt1, libdb5.3t64, libffi8, liblzma5,"
    " libncursesw6, libreadline8t64, libsqlite3-0, libtinfo6, libuuid1",
    "libpython3.12-minimal": "libc6, libssl3t64",
    "ca-certificates": "openssl, debconf | debconf-2.0",
    "openssl": "libc6, libssl3t64",
    **dict.fromkeys(("media-types", "mailcap", "python3-setuptools-whl", "python3-pip-whl", "libcrypt1"), ""),
    **dict.fromkeys(("libbz2-1.0", "libdb5.3t64", "libffi8", "liblzma5", "libncursesw6", "libreadline8t64"), ""),
    **dict.fromkeys(("libsqlite3-0", "libtinfo6", "libuuid1", "libssl3t64", *BASE), ""),
}
VENDORS: dict[str, dict[str, str]] = {
    "nvidia": {
        "cuda-nvcc-12-6": "cuda-crt-12-6, cuda-nvvm-12-6, gcc",
        "cuda-libraries-dev-12-6": "cuda-cudart-dev-12-6, libcublas-dev-12-6",
        **dict.fromkeys(("cuda-crt-12-6", "cuda-nvvm-12-6", "cuda-cudart-dev-12-6", "libcublas-dev-12-6"), ""),
    },
    "microsoft": {
        "dotnet-sdk-8.0": "dotnet-runtime-8.0, aspnetcore-runtime-8.0",
        "aspnetcore-runtime-8.0": "dotnet-runtime-8.0",
        "dotnet-runtime-8.0": "dotnet-hostfxr-8.0, dotnet-runtime-deps-8.0",
        "dotnet-hostfxr-8.0": "",
        "dotnet-runtime-deps-8.0": "libc6, libgcc-s1, libssl3, libstdc++6, zlib1g",
    },
    "amd": {"rocm-hip-sdk": "hip-runtime-amd, hipcc, rocm-llvm", "hip-runtime-amd": "", "hipcc": "", "rocm-llvm": ""},
}
TORCH = {  # of PyTorch's own indexes; one is recorded
    "2.13.0+cpu": ["manylinux_2_28_aarch64"],
    "2.13.0+cu126": ["manylinux_2_28_x86_64", "manylinux_2_28_aarch64"],
    "2.13.0+rocm6.4": ["manylinux_2_28_x86_64"],
}


@pytest.fixture(scope="module")
def web() -> Iterator[Registry]:
    with registry() as found:
        for name, versions in RECORDED["npm"].items():
            package(found, name, {version: {} for version in versions})
        yield found


@pytest.fixture(scope="module")
def mirrors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Mirror]]:
    """Debian's, and one of each vendor, which has nothing but its own packages."""
    made = {name: Mirror(tmp_path_factory.mktemp(name)) for name in ("debian", "ubuntu", *VENDORS)}
    for suite, packages in RECORDED["debian"].items():
        made["debian"].publish(suite, packages)
        made["debian"].publish(f"{suite}-updates", {each: {} for each in BOTH})
        made["debian"].publish(f"{suite}-security", {each: {} for each in BOTH})
    made["ubuntu"].publish("noble", {each: _depending(NOBLE) for each in BOTH})
    for name, needs in VENDORS.items():
        made[name].publish("bookworm", {each: _depending(needs) for each in BOTH})
    yield made
    for each in made.values():
        each.close()


def _depending(needs: dict[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"Depends": said} if said else {} for name, said in needs.items()}


@pytest.fixture(scope="module")
def mirror(mirrors: dict[str, Mirror]) -> Mirror:
    return mirrors["debian"]


@pytest.fixture(scope="module")
def site(web: Registry, mirrors: dict[str, Mirror], tmp_path_factory: pytest.TempPathFactory) -> Settings:
    directory = tmp_path_factory.mktemp("wheels")
    for versions in RECORDED["pypi"].values():
        for known in versions.values():
            for file in known["files"]:
                name, version, *tag = file.removesuffix(".whl").split("-")
                wheel(directory, name, version, "-".join(tag), *known["needs"])
    needs = RECORDED["pypi"]["torch"]["2.13.0+cpu"]["needs"]
    for version, platforms in TORCH.items():
        for platform in platforms:
            wheel(directory, "torch", version, f"cp311-cp311-{platform}", *needs)
    indexes = tuple(Index(name, each.url, each.keyring) for name, each in mirrors.items() if name != "debian")
    return Settings(
        pypi_index=f"{web.url}/simple",
        find_links=(str(directory),),
        indexes=indexes,
        npm_registry=web.url,
        debian_mirror=mirrors["debian"].url,
        debian_security_mirror=mirrors["debian"].url,
        debian_keyring=mirrors["debian"].keyring,
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    made = Shelf(tmp_path_factory.mktemp("shelf"))
    made.make()
    return made


def locked(name: str, site: Settings, shelf: Shelf, architecture: str = "amd64") -> Lock:
    with shelf.workspace() as work:
        return lock(Library().get(name), architecture, site, shelf, work)


DECLARED = [(name.id, architecture) for name in Library().names()
            for architecture in Library().get(name.id).requirements.architectures]  # fmt: skip


@pytest.mark.parametrize(("name", "architecture"), DECLARED)
def test_a_shipped_recipe_can_be_locked(name: str, architecture: str, site: Settings, shelf: Shelf) -> None:
    """For every architecture that it declares, with all that its packages need."""
    recipe, found = Library().get(name), locked(name, site, shelf, architecture)
    assert found.architecture == architecture
    assert set(BASE) <= {each.name for each in found.base}
    wheels = [each.file for each in found.artifacts if each.kind == "pypi"]
    other = {"amd64": "aarch64", "arm64": "x86_64"}[architecture]
    assert not [file for file in wheels if other in file]
    asked = {item for source in recipe.sources if source.kind == "deb" for item in source.items}
    assert asked - set(BASE) <= {each.name for each in found.artifacts}
    kinds = {source.kind for source in recipe.sources}
    assert {each.kind for each in found.artifacts} == kinds
    assert all(each.digest.split(":")[1] for each in found.artifacts)
    for source in recipe.sources:
        if source.suite not in ("", "bookworm"):
            assert all(each.own_libc for each in found.artifacts if each.kind == "deb")


@pytest.mark.parametrize(
    ("name", "has"), [("python:3.11", "libssl3"), ("dotnet:8", "libssl3"), ("cuda-dev:12.6", "gcc")]
)
def test_what_the_base_has_is_not_in_a_runtime(name: str, has: str, site: Settings, shelf: Shelf) -> None:
    """And what vendors do not have comes from Debian."""
    names = [each.name for each in locked(name, site, shelf).artifacts]
    assert has in names
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
