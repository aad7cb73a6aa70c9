"""Where packages come from on this site: the public registries unless it says otherwise.

A file of YAML (GPUAAS_RUNTIME_SETTINGS, or /etc/gpuaas/runtimes.yml), then the environment:
GPUAAS_PYPI_INDEX, GPUAAS_FIND_LINKS, GPUAAS_NPM_REGISTRY, GPUAAS_DEBIAN_MIRROR, GPUAAS_DEBIAN_SECURITY_MIRROR;
UV_DEFAULT_INDEX, UV_FIND_LINKS and PIP_FIND_LINKS, which people who use uv or pip have already, count too.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.located import MAX_BYTES, Findings, Place, parse

DEFAULT_FILE = Path("/etc/gpuaas/runtimes.yml")
_PLACE = re.compile(r"(https?://|file:///|/)[^\s'\"\\]{0,1000}")
_SUITE = re.compile(r"/|\./|[a-z][a-z0-9./-]{0,60}")
_COMPONENTS = re.compile(r"[a-z][a-z-]*( [a-z][a-z-]*)*")
_FIELDS = ("pypi_index", "find_links", "npm_registry", "debian_mirror", "debian_security_mirror", "debian_keyring")


class Index(Struct, frozen=True):
    """A registry of the site: an index of PyPI's kind, or a Debian mirror, which is signed with a key of its own."""

    name: str  # what recipes call it
    url: str
    keyring: str = ""
    suite: str = ""  # where the mirror calls it otherwise than the recipe; `/` for one without suites
    components: str = "main"


class Settings(Struct, frozen=True):
    pypi_index: str = "https://pypi.org/simple"
    find_links: tuple[str, ...] = ()  # directories or pages with wheels
    indexes: tuple[Index, ...] = ()
    npm_registry: str = "https://registry.npmjs.org"
    debian_mirror: str = "http://deb.debian.org/debian"
    debian_security_mirror: str = "http://deb.debian.org/debian-security"
    debian_keyring: str = "/usr/share/keyrings/debian-archive-keyring.gpg"

    def index(self, name: str) -> Index | None:
        return next((each for each in self.indexes if each.name == name), None)


def load(environment: Mapping[str, str] = os.environ) -> Settings:
    named = environment.get("GPUAAS_RUNTIME_SETTINGS")
    file = Path(named) if named else DEFAULT_FILE
    settings = _read(file) if named or file.exists() else Settings()
    said = {
        "pypi_index": environment.get("GPUAAS_PYPI_INDEX") or environment.get("UV_DEFAULT_INDEX"),
        "npm_registry": environment.get("GPUAAS_NPM_REGISTRY"),
        "debian_mirror": environment.get("GPUAAS_DEBIAN_MIRROR"),
        "debian_security_mirror": environment.get("GPUAAS_DEBIAN_SECURITY_MIRROR"),
    }
    links = (environment.get("GPUAAS_FIND_LINKS") or environment.get("UV_FIND_LINKS") or "").replace(",", " ").split()
    if not links and not settings.find_links:  # written for pip, which also takes what means nothing to a build
        links = [link for link in environment.get("PIP_FIND_LINKS", "").split() if _PLACE.fullmatch(link)]
    changed = {name: value for name, value in said.items() if value}
    for name, value in [*changed.items(), *(("find links", link) for link in links)]:
        if not _PLACE.fullmatch(value):
            raise Problem("invalid_settings", 422, f"{value!r} is not an address ({name}).", "Use https:// or a path.")
    return msgspec.structs.replace(settings, **changed, **({"find_links": tuple(links)} if links else {}))


def _read(file: Path) -> Settings:
    try:
        text = file.read_bytes()[: MAX_BYTES + 1].decode(errors="replace")
    except OSError as error:
        said = f"{file}: {error.strerror or error}"
        raise Problem("invalid_settings", 422, said, "GPUAAS_RUNTIME_SETTINGS names a file of YAML.") from error
    findings = Findings(str(file))
    place = parse(text, findings)
    said_so: dict[str, object] = {}
    if place is not None:
        found = place.fields((), (*_FIELDS, "indexes"))
        for name, each in found.items():
            if name == "indexes":
                said_so[name] = tuple(_index(key, value) for key, value in each.pairs())
            else:
                said_so[name] = each.items(_address) if name == "find_links" else _address(each)
    findings.raise_if_any()
    return msgspec.convert(said_so, Settings)


def _index(name: str, place: Place) -> Index:
    """An address, or a mapping with more."""
    if place.is_text:
        return Index(name, _address(place))
    found = place.fields(("url",), ("keyring", "suite", "components"))
    said: dict[str, str] = {field: _address(found[field]) for field in ("url", "keyring") if field in found}
    if "suite" in found:
        said["suite"] = found["suite"].word(_SUITE.fullmatch, "the name of a suite, or /")
    if "components" in found:
        said["components"] = found["components"].word(_COMPONENTS.fullmatch, "names of components, such as main")
    return Index(name, said.pop("url", ""), **said)


def _address(place: Place) -> str:
    return place.word(_PLACE.fullmatch, "an address that starts with https://, http://, file:/// or /")
