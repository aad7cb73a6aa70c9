"""Debian packages: apt decides, in a world of its own, so that neither its state nor its hooks on this host are used.

What every machine has (`BASE`) counts as installed. A suite other than the base's brings its own C library; there only
the programs that maintainer scripts need count as installed, because those scripts are never run.
"""

import re
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import process
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.recipe import Source
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.shelf import write

BASE_SUITE = "bookworm"
_OF_DEBIAN = ("bookworm", "trixie")  # what vendors make for them needs Debian's own packages beside
BASE = (
    "base-files", "bash", "coreutils", "dash", "debconf", "debianutils", "dpkg", "findutils", "grep", "gzip",
    "libc-bin", "libc6", "libgcc-s1", "libstdc++6", "mawk", "perl-base", "sed", "tar", "zlib1g",
)  # fmt: skip
_FOR_SCRIPTS = ("debconf", "dpkg", "tar", "perl-base", "base-passwd", "init-system-helpers", "openssl", "libc-bin")
_FRESH_SECONDS = 600
_STAMP, _BASE_FILE = "updated", "base.json"
_URI = re.compile(r"'(?P<url>[^']+)' (?P<file>\S+_\S+_\S+\.deb) (?P<size>[0-9]+)")
_SETTINGS = re.compile(r'Acquire::(https?::\S*|Check-Valid-Until|ForceIPv[46]|Retries) ".+";')
_STATED = ("Package", "Version", "Architecture", "Provides", "Multi-Arch", "Essential")


class Apt:
    """apt for one suite and mirror; its lists stay for the next time."""

    def __init__(self, directory: Path, suite: str, index: str, architecture: str, settings: Settings) -> None:
        self.home = directory / f"{suite}-{index or 'debian'}-{architecture}"
        self._suite, self._architecture = suite, architecture
        for name in ("etc/empty", "state", "lists/partial", "cache/archives/partial"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        sources = self.home / "etc" / "sources.list"
        if not sources.exists() or sources.read_text() != self._sources(index, settings):
            (self.home / _STAMP).unlink(missing_ok=True)
            sources.write_text(self._sources(index, settings))
        (self.home / "apt.conf").write_text(self._configuration())
        self.provide([])

    def update(self) -> None:
        """Not again within some minutes: several runtimes are often built in a row."""
        stamp = self.home / _STAMP
        if stamp.exists() and 0 <= time.time() - stamp.stat().st_mtime < _FRESH_SECONDS:
            return
        try:
            self._ask("apt-get", "update", "-qq", "-o", "APT::Update::Error-Mode=any")
        except Problem as problem:
            said = f"The package lists of Debian {self._suite} cannot be had."
            hint = "Check the network, or name a mirror of your site: see docs/guides/runtimes.md."
            raise Problem("index_unreachable", 503, said, hint, detail=problem.detail) from problem
        stamp.touch()

    def provide(self, stanzas: Iterable[dict[str, str]]) -> None:
        """These count as installed, and need nothing."""
        said = [
            "".join(f"{name}: {each[name]}\n" for name in _STATED if name in each) + "Status: install ok installed\n"
            for each in stanzas
        ]
        (self.home / "status").write_text("\n".join(said))

    def closure(self, packages: Iterable[str]) -> list[Artifact]:
        """These packages and all that they need and that is not provided."""
        wanted = sorted(set(packages))
        if not wanted:
            return []
        try:
            printed = self._ask("apt-get", "install", "-qq", "-y", "--print-uris", "--no-install-recommends", *wanted)
        except Problem as problem:
            said = f"Debian {self._suite} cannot install {', '.join(wanted)}."
            raise Problem("cannot_lock", 422, said, "Check the names.", detail=problem.detail) from problem
        found = {}
        for match in _URI.finditer(printed):
            name, version, _ = unquote(match["file"]).removesuffix(".deb").split("_")
            found[name, version] = match
        return [
            Artifact("deb", name, version, unquote(found[name, version]["file"]),
                     f"sha256:{stanza['SHA256']}", found[name, version]["url"], int(stanza["Size"]))
            for (name, version), stanza in sorted(self._stanzas(found).items())
        ]  # fmt: skip

    def stanzas(self, packages: Iterable[str]) -> list[dict[str, str]]:
        """What the lists say about the newest version of each; packages that the suite does not have are left out."""
        known = set(self._ask("apt-cache", "pkgnames").split())
        wanted = [name for name in packages if name in known]
        return _parsed(self._ask("apt-cache", "show", "--no-all-versions", *wanted)) if wanted else []

    def _stanzas(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
        pairs = list(wanted)
        shown = _parsed(self._ask("apt-cache", "show", *(f"{name}={version}" for name, version in pairs)))
        by_name = {(each["Package"], each["Version"]): each for each in shown}
        if missing := [f"{name} {version}" for name, version in pairs if (name, version) not in by_name]:
            raise Problem("cannot_lock", 500, f"apt does not know the digest of {missing[0]}.")
        return {pair: by_name[pair] for pair in pairs}

    def _ask(self, program: str, *arguments: str) -> str:
        env = process.environment(APT_CONFIG=str(self.home / "apt.conf"), DEBIAN_FRONTEND="noninteractive")
        return process.run([program, *arguments], env=env, timeout_seconds=300, what=program, whole=True)

    def _sources(self, index: str, settings: Settings) -> str:
        options = f"[arch={self._architecture} signed-by={settings.debian_keyring}]"
        of_debian = "".join(
            f"deb {options} {mirror} {suite} main\n"
            for mirror, suite in (
                (settings.debian_mirror, self._suite),
                (settings.debian_mirror, f"{self._suite}-updates"),
                (settings.debian_security_mirror, f"{self._suite}-security"),
            )
        )
        if index:
            found = settings.index(index)
            if found is None:
                said = f"This runtime needs a mirror called {index}, and your site has none."
                raise Problem("cannot_lock", 422, said, "Add it under `indexes:`, see docs/guides/runtimes.md.")
            options = options.replace(settings.debian_keyring, found.keyring or settings.debian_keyring)
            suite = found.suite or self._suite
            own = f"deb {options} {found.url} {suite} {'' if suite.endswith('/') else found.components}\n"
            return own + (of_debian if self._suite in _OF_DEBIAN else "")
        return of_debian

    def _configuration(self) -> str:
        """The host's proxies and certificates, and nothing else of its configuration: above all none of its hooks."""
        home = self.home
        host = process.run(["apt-config", "dump"], what="apt-config", whole=True)
        kept = [line for line in host.splitlines() if _SETTINGS.fullmatch(line)]
        return "\n".join([
            f'Dir "{home}";', f'Dir::Etc "{home}/etc";', f'Dir::Etc::parts "{home}/etc/empty";',
            'Dir::Etc::main "none";', f'Dir::Etc::sourcelist "{home}/etc/sources.list";',
            f'Dir::Etc::sourceparts "{home}/etc/empty";', 'Dir::Etc::preferences "none";',
            f'Dir::Etc::preferencesparts "{home}/etc/empty";', f'Dir::State "{home}/state";',
            f'Dir::State::lists "{home}/lists";', f'Dir::State::status "{home}/status";',
            f'Dir::Cache "{home}/cache";', 'Dir::Bin::methods "/usr/lib/apt/methods";', 'Dir::Log "/dev/null";',
            'Acquire::Languages "none";', 'APT::Install-Recommends "false";', 'APT::Sandbox::User "";',
            f'APT::Architecture "{self._architecture}";', "#clear APT::Architectures;",
            f'APT::Architectures {{ "{self._architecture}"; }};', *kept, "",
        ])  # fmt: skip


class _Decided(Struct, frozen=True):
    """The base of one look at the lists, for the next runtime."""

    of: tuple[str, ...]
    base: tuple[Artifact, ...]
    stanzas: tuple[dict[str, str], ...]


def lock_base(directory: Path, architecture: str, settings: Settings) -> tuple[Apt, list[Artifact]]:
    """The base, and an apt that counts it as installed."""
    apt = Apt(directory, BASE_SUITE, "", architecture, settings)
    apt.update()
    decided = _decided(apt)
    if decided is None:
        base = tuple(apt.closure(BASE))
        decided = _Decided(BASE, base, tuple(apt.stanzas(each.name for each in base)))
        write(apt.home / _BASE_FILE, msgspec.json.encode(decided))
    apt.provide(decided.stanzas)
    return apt, list(decided.base)


def _decided(apt: Apt) -> _Decided | None:
    try:
        file = apt.home / _BASE_FILE
        if file.stat().st_mtime_ns < (apt.home / _STAMP).stat().st_mtime_ns:
            return None
        found = msgspec.json.decode(file.read_bytes(), type=_Decided)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.of == BASE else None


def lock(source_list: list[Source], apt: Apt, directory: Path, architecture: str, settings: Settings) -> list[Artifact]:
    """Packages of one suite are decided together. `apt` is that of the base's suite."""
    groups: dict[tuple[str, str], list[str]] = {}
    for source in source_list:
        groups.setdefault((source.suite, source.index), []).extend(source.items)
    found: list[Artifact] = []
    for (suite, index), packages in groups.items():
        if (suite, index) == (BASE_SUITE, ""):
            found += apt.closure(packages)
            continue
        other = Apt(directory, suite, index, architecture, settings)
        other.update()
        base = _decided(apt) if suite == BASE_SUITE else None  # a vendor's packages run on the base, too
        other.provide(base.stanzas if base else other.stanzas(_FOR_SCRIPTS))
        found += [msgspec.structs.replace(each, own_libc=suite != BASE_SUITE) for each in other.closure(packages)]
    return found


def _parsed(text: str) -> list[dict[str, str]]:
    stanzas = []
    for block in text.split("\n\n"):
        fields = (line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(" "))
        if found := {name: value.strip() for name, value in fields}:
            stanzas.append(found)
    return stanzas
