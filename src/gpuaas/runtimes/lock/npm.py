"""npm packages: the newest version of a line, with the integrity that the registry has. 18 is 18.x, or nothing."""

import base64
import re
from urllib.parse import quote

import httpx

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.lock import web
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.recipe import Source
from gpuaas.runtimes.settings import Settings

_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")


def lock(source: Source, settings: Settings) -> list[Artifact]:
    with web.client() as http:
        return [_one(item, source, settings, http) for item in source.items]


def _one(item: str, source: Source, settings: Settings, http: httpx.Client) -> Artifact:
    name, _, wanted = item.rpartition("@")
    url = f"{settings.npm_registry.rstrip('/')}/{quote(name, safe='@')}"
    try:
        answer = http.get(url, headers={"Accept": "application/vnd.npm.install-v1+json"})
    except httpx.HTTPError as error:
        raise web.unreachable(url, error) from error
    if answer.status_code != 200:
        said = f"The npm registry answered {answer.status_code} for {name}."
        raise Problem("not_in_registry", 422, said, "Check the name, or the registry of your site.")
    versions = answer.json().get("versions", {})
    version = newest(wanted, versions)
    if version is None:
        have = ", ".join(sorted(filter(_RELEASE.fullmatch, versions), key=_numbers)[-5:])
        said = f"npm has no {name} {wanted}.x; the newest are {have or 'none'}."
        raise Problem("not_in_registry", 422, said, "Choose a version that exists; another is never taken instead.")
    about = versions[version]
    bundled = about.get("bundleDependencies") or about.get("bundledDependencies") or []
    if open_ends := sorted(set(about.get("dependencies") or {}) - set(bundled)):
        said = f"{name}@{version} needs {', '.join(open_ends[:5])}, which it does not bring."
        raise Problem("not_in_registry", 422, said, "Use packages without dependencies, or that bundle them.")
    dist = about["dist"]
    algorithm, _, value = dist.get("integrity", "").partition("-")
    if algorithm != "sha512":
        raise Problem("not_in_registry", 422, f"The npm registry has no sha512 for {name}@{version}.")
    digest = f"sha512:{base64.b64decode(value).hex()}"
    file = f"{name.replace('/', '-').lstrip('@')}-{version}.tgz"
    return Artifact("npm", name, version, file, digest, dist["tarball"], into=source.into or ".", strip=1)


def newest(wanted: str, versions: dict[str, object]) -> str | None:
    """Of the releases that start with the wanted numbers."""
    fitting = [each for each in versions if _RELEASE.fullmatch(each) and f"{each}.".startswith(f"{wanted}.")]
    return max(fitting, key=_numbers, default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
