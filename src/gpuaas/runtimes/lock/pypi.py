"""Wheels: uv decides versions, from the site's indexes; we note the one wheel of each that fits the machine.

Only wheels: what would have to be compiled or run to be installed is refused.
"""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import process
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.recipe import Source
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.tools import uv

_GLIBC = 36  # 2.36, of the base
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def lock(
    sources: list[Source], python: str, architecture: str, settings: Settings, cache: Path, work: Path
) -> list[Artifact]:
    """All that is installed is decided together; a wheel that is only unpacked stands alone."""
    version = re.sub(r"^.*python", "", python) or "3.11"
    installed = [source for source in sources if not source.into]
    found: list[Artifact] = []
    if installed:
        if not python:
            raise Problem("invalid_recipe", 422, "Wheels need a Python.", "Add `from: python:3.11`, or `python:`.")
        found += _compile(installed, version, architecture, settings, cache, work, "")
    for source in sources:
        if source.into:
            found += _compile([source], version, architecture, settings, cache, work, source.into)
    return found


def _compile(
    sources: list[Source], version: str, architecture: str, settings: Settings, cache: Path, work: Path, into: str
) -> list[Artifact]:
    wanted, locked = work / "requirements.txt", work / "pylock.toml"
    wanted.write_text("".join(f"{item}\n" for source in sources for item in source.items))
    locked.unlink(missing_ok=True)
    command = [uv(), "pip", "compile", str(wanted), "--quiet", "--no-config", "--no-python-downloads"]
    command += ["--cache-dir", str(cache), "--only-binary", ":all:", "--format", "pylock.toml", "-o", str(locked)]
    command += ["--python-version", version, "--python-platform", f"{_MACHINES[architecture]}-manylinux_2_{_GLIBC}"]
    command += ["--default-index", settings.pypi_index]
    for name in dict.fromkeys(source.index for source in sources if source.index):
        if index := settings.index(name):
            command += ["--index", index.url]
    command += [part for link in settings.find_links for part in ("--find-links", link)]
    command += ["--no-deps"] if into else []
    try:
        process.run(command, env=_environment(), timeout_seconds=600, what="uv")
    except Problem as problem:
        missing = [each.index for each in sources if each.index and settings.index(each.index) is None]
        hint = f"Your site has no index called {missing[0]}; see docs/guides/runtimes.md." if missing else ""
        said = f"These wheels cannot be had together: {', '.join(item for each in sources for item in each.items)}."
        raise Problem("cannot_lock", 422, said, hint, detail=problem.detail) from problem
    packages = tomllib.loads(locked.read_text()).get("packages", [])
    suitable = tags(version, architecture)
    return [_artifact(package, suitable, into) for package in packages]


def _environment() -> dict[str, str]:
    return process.environment(UV_SYSTEM_CERTS="1", UV_NATIVE_TLS="1")  # two names: old uv, new uv


def tags(version: str, architecture: str) -> dict[Tag, int]:
    """What the target takes, the best first."""
    machine = _MACHINES[architecture]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, 16, -1)] + [f"manylinux2014_{machine}"]
    platforms += [f"manylinux2010_{machine}", f"manylinux1_{machine}"] if architecture == "amd64" else []
    platforms += [f"linux_{machine}"]
    python = tuple(int(part) for part in version.split(".")[:2])
    listed = [
        *cpython_tags(python, platforms=platforms),
        *compatible_tags(python, f"cp{python[0]}{python[1]}", platforms),
    ]
    return {tag: place for place, tag in reversed(list(enumerate(listed)))}


def _artifact(package: dict[str, Any], suitable: dict[Tag, int], into: str) -> Artifact:
    name, version = package["name"], package.get("version", "")
    best: tuple[int, Artifact] | None = None
    for wheel in package.get("wheels", []):
        url = wheel.get("url") or Path(wheel["path"]).absolute().as_uri()
        file = wheel.get("name") or unquote(urlsplit(url).path).rpartition("/")[2]
        places = [suitable[tag] for tag in parse_wheel_filename(file)[3] if tag in suitable]
        if places and (best is None or min(places) < best[0]):
            digest = f"sha256:{wheel['hashes']['sha256']}"
            best = min(places), Artifact("pypi", name, version, file, digest, url, wheel.get("size", 0), into)
    if best is None:
        raise Problem(
            "cannot_lock", 422, f"There is no wheel of {name} {version} for this runtime's Python and machine."
        )
    return best[1]
