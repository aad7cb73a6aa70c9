"""The OCI runtimes of this host, and what is known against the versions that are installed.

A hole blocks a runtime unless the agent itself closes it. Versions and holes: opencontainers/runc and containers/crun
security advisories; Debian repairs some holes without changing the version, so its package version counts too.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.command import SEARCH_PATH, run

RECOMMENDED = {"runc": "runc 1.3.6, 1.4.3 or newer", "crun": "crun 1.29.1 or newer"}
_SECONDS = 10.0
_NO_HOST_ROOT = "no allocation's user namespace has the host's root"
_CHECKED_ROOTFS = "the agent looks for links in the root file system before each start"
_OWN_DEV = "every allocation has a /dev of its own"


@dataclass(frozen=True)
class Hole:
    """`fixed` has one version per branch; a branch older than all of them never got the fix."""

    cve: str
    fixed: tuple[str, ...]
    closed_by: str = ""  # how the agent keeps it from mattering; empty: it does not
    debian: str = ""  # the first package version that has the fix without the version saying so
    since: str = "0.0"


HOLES = {
    "runc": (
        Hole("CVE-2019-5736", ("1.0.0-rc7",)),
        Hole("CVE-2021-30465", ("1.0.0-rc95",)),
        Hole("CVE-2024-21626", ("1.1.12",), debian="1.1.5+ds1-1+deb12u1", since="1.0.0-rc93"),
        Hole("CVE-2025-31133", ("1.2.8", "1.3.3", "1.4.0-rc.3"), _NO_HOST_ROOT),
        Hole("CVE-2025-52565", ("1.2.8", "1.3.3", "1.4.0-rc.3"), _NO_HOST_ROOT),
        Hole("CVE-2025-52881", ("1.2.8", "1.3.3", "1.4.0-rc.3"), _NO_HOST_ROOT),
        Hole("CVE-2026-41579", ("1.3.6", "1.4.3", "1.5.0-rc.3"), _CHECKED_ROOTFS),
    ),
    "crun": (
        Hole("CVE-2019-5736", ("1.0",)),  # fixed somewhere in 0.x; nobody has those
        Hole("CVE-2022-27650", ("1.4.4",)),
        Hole("CVE-2026-30892", ("1.27",), "it gives away root inside only", since="1.19"),
        Hole("CVE-2026-47766", ("1.28",), _CHECKED_ROOTFS),
        Hole("CVE-2026-88264", ("1.30",), _OWN_DEV),  # fixed after 1.29.1, not released when this was written
        Hole("CVE-2026-88265", ("1.30",), _OWN_DEV),
    ),
}


@dataclass(frozen=True)
class Runtime:
    name: str
    path: str
    version: str
    package: str  # Debian's version, or "" when it did not come from Debian
    open_holes: tuple[Hole, ...]
    refusal: str = ""  # why it cannot be used here

    @property
    def verdict(self) -> str:
        if not self.open_holes:
            return "no known holes"
        by_reason: dict[str, list[str]] = {}
        for hole in self.open_holes:
            by_reason.setdefault(hole.closed_by or "NOT CLOSED", []).append(hole.cve)
        return "known holes: " + "; ".join(f"{', '.join(cves)} ({reason})" for reason, cves in by_reason.items())


def parse_version(text: str) -> tuple[int, int, int, int]:
    """1.0.0-rc95 comes before 1.0.0; +ds1 and the like mean nothing."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?(?:[-~]rc\.?(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a version")
    major, minor, patch, candidate = match.groups()
    return int(major), int(minor), int(patch or 0), int(candidate) if candidate else 10**6


def open_holes(name: str, version: str, debian_has: Callable[[str], bool]) -> tuple[Hole, ...]:
    """`debian_has` says whether the installed package is at least this version."""
    found = parse_version(version)
    return tuple(
        hole
        for hole in HOLES[name]
        if found >= parse_version(hole.since)
        and not _fixed(found, hole.fixed)
        and not (hole.debian and debian_has(hole.debian))
    )


def installed(layout: Layout) -> list[Runtime]:
    """Best first: those that can be used, `runc` before `crun`."""
    found = [runtime for name in HOLES if (runtime := _look(name, layout)) is not None]
    return sorted(found, key=lambda runtime: bool(runtime.refusal))


def choose(layout: Layout) -> str:
    """The program of the best one. Refused with reasons where none can be used: nothing is started by a guess."""
    found = installed(layout)
    if not found or found[0].refusal:
        reasons = "; ".join(f"{runtime.path}: {runtime.refusal}" for runtime in found) or "none is installed"
        raise HostError("choose", "an OCI runtime", f"{reasons}; `gpuaas agent doctor` says more")
    return found[0].path


def _look(name: str, layout: Layout) -> Runtime | None:
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        return None
    try:
        first_line = run([path, "--version"], _SECONDS).output.partition("\n")[0]
        version = first_line.split()[-1]
        package = _package_version(path)
        holes = open_holes(name, version, lambda wanted: bool(package) and _at_least(package, wanted))
    except (HostError, ValueError, IndexError) as error:
        return Runtime(name, path, "", "", (), f"it does not say its version: {error}")
    return Runtime(name, path, version, package, holes, _refusal(name, holes, layout))


def _refusal(name: str, holes: tuple[Hole, ...], layout: Layout) -> str:
    blocking = [hole.cve for hole in holes if not hole.closed_by]
    if blocking:
        return f"it is open to {', '.join(blocking)}"
    if name == "crun" and layout.kind == "hybrid" and layout.v2_controllers:
        return "it starts nothing on a hybrid host that has controllers on cgroup v2 (measured with 1.8.1)"
    return ""


def _fixed(version: tuple[int, int, int, int], fixed: tuple[str, ...]) -> bool:
    branches = [parse_version(text) for text in fixed]
    same = [branch for branch in branches if branch[:2] == version[:2]]
    return version >= same[0] if same else version > max(branches)


def _package_version(path: str) -> str:
    """Empty unless Debian's package brought this very file."""
    try:
        owner = run(["dpkg-query", "--search", path], _SECONDS)
        if owner.code != 0:
            return ""
        shown = run(["dpkg-query", "--show", "--showformat=${Version}", owner.output.partition(":")[0]], _SECONDS)
    except HostError:
        return ""
    return shown.output.strip() if shown.code == 0 else ""


def _at_least(package: str, wanted: str) -> bool:
    return run(["dpkg", "--compare-versions", package, "ge", wanted], _SECONDS).code == 0
