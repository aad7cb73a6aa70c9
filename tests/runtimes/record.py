"""Records what the public registries say of all that the shipped recipes ask for, for both architectures.

By hand, from tests/, where the network is: `python -m runtimes.record`. Names, versions, files and dependencies of
whatever a lock of today takes go to recorded/*.json; test_lock_declared.py locks every recipe against that, offline.
"""

import io
import json
import re
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import httpx
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.lock import deb, web
from gpuaas.runtimes.lock.fresh import fresh
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.recipe import Source
from gpuaas.runtimes.settings import Index, load
from gpuaas.runtimes.shelf import Shelf

RECORDED = Path(__file__).parent / "recorded"
ARCHITECTURES = ("amd64", "arm64")
UBUNTU = Index("ubuntu", "http://archive.ubuntu.com/ubuntu", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
PROVIDED = (
    "debconf",
    "dpkg",
    "tar",
    "perl-base",
    "base-passwd",
    "init-system-helpers",
    "openssl",
    "libc-bin",
)  # by a base
BESIDE = Source("deb", ("gcc", "libc6-dev"), suite="bookworm")  # what cuda-dev takes from Debian
KEPT = ("Version", "Architecture", "Depends", "Pre-Depends", "Provides", "Multi-Arch")


class Remote(io.RawIOBase):
    """A file on a web server, read in parts."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        self.http, self.url, self.at = http, url, 0
        self.size = int(http.head(url).headers["content-length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = {0: 0, 1: self.at, 2: self.size}[whence] + offset
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        last = min(self.at + len(buffer), self.size) - 1
        if last < self.at:
            return 0
        data = self.http.get(self.url, headers={"Range": f"bytes={self.at}-{last}"}).content
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def requirements(http: httpx.Client, artifact: Artifact) -> list[str]:
    if artifact.url.startswith("http"):
        wheel = zipfile.ZipFile(io.BufferedReader(Remote(http, artifact.url), 1 << 16))  # type: ignore[arg-type]
    else:
        wheel = zipfile.ZipFile(artifact.url.removeprefix("file://"))
    (name,) = [each for each in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each)]
    return HeaderParser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []


def wheels(found: list[Artifact]) -> dict[str, Any]:
    """Package -> version -> its files, and what it needs, as far as the extras are used that it needs it for."""
    made: dict[str, dict[str, Any]] = {}
    files = {each.file: each for each in found}
    with web.client() as http, ThreadPoolExecutor(8) as several:
        needs = several.map(lambda each: requirements(http, each), files.values())
        for artifact, said in zip(files.values(), needs, strict=True):
            versions = made.setdefault(artifact.name, {})
            known = versions.setdefault(artifact.version, {"files": [], "needs": said})
            known["files"] = sorted({*known["files"], artifact.file})
    used: set[tuple[str, str]] = set()
    while True:
        for name, versions in made.items():
            extras = {extra for of, extra in used if of == name}
            for known in versions.values():
                known["kept"] = [each for each in known["needs"] if _counts(Requirement(each), extras)]
        kept = [
            Requirement(each) for versions in made.values() for known in versions.values() for each in known["kept"]
        ]
        wanted = {(str(canonicalize_name(each.name)), extra) for each in kept for extra in each.extras}
        if wanted <= used:
            break
        used |= wanted
    for versions in made.values():
        for known in versions.values():
            known["needs"] = known.pop("kept")
    return made


def _counts(need: Requirement, extras: set[str]) -> bool:
    if need.marker is None or "extra" not in str(need.marker):
        return True
    return any(f'extra == "{extra}"' in str(need.marker) for extra in extras)


def packages(found: list[Artifact], lists: list[Path]) -> dict[str, dict[str, str]]:
    """Of these packages what the lists say, in the version that was taken."""
    wanted = {(each.name, each.version) for each in found}
    made: dict[str, dict[str, str]] = {}
    for file in lists:
        for stanza in file.read_text().split("\n\n"):
            about = HeaderParser().parsestr(stanza)
            if (about["Package"], about["Version"]) in wanted:
                made[about["Package"]] = {key: " ".join(about[key].split()) for key in KEPT if about[key]}
            elif about["Package"] in PROVIDED:
                made.setdefault(about["Package"], {key: " ".join(about[key].split()) for key in KEPT if about[key]})
    missing = {name for name, _ in wanted} - set(made)
    assert not missing, missing
    return dict(sorted(made.items()))


def main() -> None:
    settings = load()
    settings = type(settings)(**{**{name: getattr(settings, name) for name in settings.__struct_fields__},
                                 "indexes": (*settings.indexes, UBUNTU)})  # fmt: skip
    wheels_found: list[Artifact] = []
    debs: dict[tuple[str, str], list[Artifact]] = {}
    npm: dict[str, set[str]] = {}
    unrecorded = []
    with tempfile.TemporaryDirectory() as directory:
        shelf = Shelf(Path(directory) / "runtimes")
        for name in Library().names():
            recipe = Library().get(name.id)
            for architecture in recipe.requirements.architectures:
                try:
                    lock = fresh(recipe, architecture, settings, shelf)
                except Problem as problem:
                    unrecorded.append(f"{name.id} {architecture}: {problem.message}")
                    print(unrecorded[-1])
                    continue
                print(name.id, architecture, len(lock.artifacts))
                suites = {
                    source.suite or "bookworm"
                    for source in recipe.sources
                    if source.kind == "deb" and not source.build_only
                }
                wheels_found += [each for each in lock.artifacts if each.kind == "pypi"]
                debs.setdefault(("bookworm", architecture), []).extend([*lock.base, *lock.tools])
                for suite in suites or {"bookworm"}:
                    debs.setdefault((suite, architecture), []).extend(
                        each for each in lock.artifacts if each.kind == "deb"
                    )
                for each in lock.artifacts:
                    if each.kind == "npm":
                        npm.setdefault(each.name, set()).add(each.version)
        for architecture in ARCHITECTURES:
            apt, _ = deb.lock_base(shelf.path / "apt", architecture, settings)
            debs["bookworm", architecture] += deb.lock([BESIDE], apt, shelf.path / "apt", architecture, settings)
        made: dict[str, dict[str, Any]] = {}
        for (suite, architecture), found in debs.items():
            lists = [
                file
                for place in sorted((shelf.path / "apt").glob(f"{suite}-*-{architecture}"))
                for file in sorted(place.glob("lists/*_Packages"))
            ]
            made.setdefault(suite, {})[architecture] = packages(found, lists)
    RECORDED.mkdir(exist_ok=True)
    _write("debian.json", made)
    _write("npm.json", {name: sorted(versions) for name, versions in sorted(npm.items())})
    _write("pypi.json", wheels(wheels_found))
    print("not recorded:", *unrecorded, sep="\n  ")


def _write(name: str, data: Any) -> None:
    (RECORDED / name).write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
