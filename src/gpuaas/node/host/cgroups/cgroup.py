"""One cgroup per allocation and, below it, one per session: limits, membership, end. The same calls on v1, hybrid, v2.

Nothing is remembered: the kernel's own tree is the record. On v2 the cgroup of an allocation enables no controller for
its children, so that processes may be in it and in its sessions' cgroups at once ("no internal processes" holds only
for cgroups that pass controllers on), and one limit counts for all of them.
"""

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.layout import Layout

PREFIX = "gpuaas"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ACCOUNTED = ("cpu", "cpuset", "memory", "pids", "io")


@dataclass(frozen=True)
class Cgroup:
    layout: Layout
    path: str  # below each hierarchy, like gpuaas/al-abc
    parent: "Cgroup | None" = None  # of a session's

    def directories(self) -> list[Path]:
        return [place / self.path for place in self.layout.hierarchies()]

    def child(self, name: str) -> "Cgroup":
        """A session's: it shares the limits and can be ended on its own. One hierarchy is enough to find it by."""
        return Cgroup(self.layout.one(), f"{self.path}/{_checked(name)}", self)

    def exists(self) -> bool:
        return any(directory.is_dir() for directory in self.directories())

    def ensure(self) -> None:
        """Made in every hierarchy of its layout. Limits are in `limits`."""
        for place in self.layout.hierarchies():
            self._make(place)

    def join(self, pid: int) -> None:
        """Of all hierarchies, one and the same cgroup; of a session, its own where it has one, first."""
        mine = self.layout.hierarchies()
        shared = [place for place in self.parent.layout.hierarchies() if place not in mine] if self.parent else []
        for directory in (*self.directories(), *(place / self.parent.path for place in shared if self.parent)):
            write(directory / "cgroup.procs", str(pid))

    def remove(self, timeout_seconds: float = 2.0) -> None:
        """With all its children. It must be empty; absent is success."""
        deadline = time.monotonic() + timeout_seconds
        for directory in self.directories():
            for each in _deepest_first(directory):
                _remove(each, deadline)

    def _make(self, place: Path) -> None:
        names = Path(self.path).parts
        steps = [place.joinpath(*names[:depth]) for depth in range(1, len(names) + 1)]
        for attempt in range(3):
            try:
                for step in steps:
                    self._make_one(place, step)
                return
            except FileNotFoundError as error:  # another agent removed the empty prefix meanwhile
                if attempt == 2:
                    raise HostError("make the cgroup", str(steps[-1]), str(error)) from error
            except OSError as error:
                raise HostError("make the cgroup", str(steps[-1]), str(error)) from error

    def _make_one(self, place: Path, directory: Path) -> None:
        if place == self.layout.v2 and directory.parent in (place, place / Path(self.path).parts[0]):
            _enable(directory.parent, self.layout.v2_controllers)  # down to the allocation's, and no further
        directory.mkdir(mode=0o755, exist_ok=True)
        if place == self.layout.v1.get("cpuset"):
            for name in ("cpuset.cpus", "cpuset.mems"):  # no process can enter before both are set
                if not (directory / name).read_text().strip():
                    write(directory / name, (directory.parent / name).read_text().strip())


def cgroup(layout: Layout, id: str, prefix: str = PREFIX) -> Cgroup:
    return Cgroup(layout, f"{_checked(prefix)}/{_checked(id)}")


def present(layout: Layout, prefix: str = PREFIX) -> list[str]:
    """The ids of all that exist, in any hierarchy."""
    found: set[str] = set()
    for place in layout.hierarchies():
        with contextlib.suppress(FileNotFoundError):
            entries = os.scandir(place / _checked(prefix))
            found |= {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    return sorted(found)


def remove_prefix(layout: Layout, prefix: str = PREFIX) -> None:
    """The empty shell of them all; left alone while one is inside."""
    for place in layout.hierarchies():
        with contextlib.suppress(OSError):
            (place / _checked(prefix)).rmdir()


def _enable(directory: Path, controllers: Iterable[str]) -> None:
    wanted = [name for name in _ACCOUNTED if name in controllers]
    have = (directory / "cgroup.subtree_control").read_text().split()
    missing = [f"+{name}" for name in wanted if name not in have]
    if missing:
        write(directory / "cgroup.subtree_control", " ".join(missing))


def _deepest_first(directory: Path) -> list[Path]:
    return [Path(path) for path, _, _ in os.walk(directory, topdown=False)]


def _remove(directory: Path, deadline: float) -> None:
    while True:
        try:
            directory.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            # A process that has just died leaves its cgroup a moment later.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise HostError("remove the cgroup", str(directory), str(error)) from error
        time.sleep(0.005)


def write(file: Path, value: str) -> None:
    try:
        with file.open("w") as handle:
            handle.write(value)
    except OSError as error:
        raise HostError("write", str(file), f"{value!r}: {error.strerror}") from error


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise HostError("name the cgroup", repr(name), "not a name for a cgroup", transient=False)
    return name
