"""Which cgroup hierarchies this host has, and where: v2 alone, v1, or both side by side (hybrid)."""

import re
from dataclasses import dataclass
from pathlib import Path

# All of them, and named ones (`name=systemd`): an OCI runtime makes its cgroup in every hierarchy that it finds, and
# leaves it there when it is killed.
CONTROLLERS = {"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio"}
CONTROLLERS |= {"hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "misc"}
_MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Layout:
    """`v1` maps a controller to where its hierarchy is mounted; several may share one. `v2` is absent on a v1 host."""

    v1: dict[str, Path]
    v2: Path | None = None
    v2_controllers: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        if not self.v1:
            return "v2" if self.v2 else "none"
        return "hybrid" if self.v2 else "v1"

    def hierarchies(self) -> list[Path]:
        """Every place where a process can be a member, each once; v2 first."""
        places = [self.v2] if self.v2 else []
        return places + sorted(set(self.v1.values()))

    def one(self) -> "Layout":
        """The hierarchy in which processes can be told apart and ended with the least effort, alone."""
        if self.v2 is not None:
            return Layout({}, self.v2)
        kept = "freezer" if "freezer" in self.v1 else min(self.v1, default="")
        return Layout({kept: self.v1[kept]} if kept else {})

    def lacking(self) -> list[str]:
        """The limits that nothing on this host can enforce."""
        have = set(self.v1) | self.v2_controllers
        return [name for name in ("cpu", "cpuset", "memory", "pids") if name not in have]


def detect(mountinfo: Path = _MOUNTINFO) -> Layout:
    """The first mount of each hierarchy counts: others are copies, perhaps read-only, of containers on this host."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in mountinfo.read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = Path(_unescape(before.split()[4]))
        kind, _, options = (*after.split(maxsplit=2), "", "", "")[:3]
        if kind == "cgroup2" and v2 is None:
            v2 = place
        if kind == "cgroup":
            for name in options.split(","):
                if name in CONTROLLERS or name.startswith("name="):
                    v1.setdefault(name, place)
    return Layout(v1, v2, _controllers(v2) if v2 else frozenset())


def _controllers(v2: Path) -> frozenset[str]:
    try:
        return frozenset((v2 / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
