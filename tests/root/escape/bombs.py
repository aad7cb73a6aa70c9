"""What a tenant may use up, and how it is seen from outside that it did: a bomb that is a dud proves nothing."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import json

from gpuaas.node.host.cgroups import layout
from gpuaas.node.host.container.rlimits import rlimits
from gpuaas.node.host.machines import RECORD, Record
from gpuaas.wire.node import Sample
from root.escape.tenants import Tenant

_MIB = 1 << 20
_MANY_FILES = min(20_000, rlimits()["RLIMIT_NOFILE"][1]) - 10  # of one process
_MORE_FILES = "ulimit -n $(ulimit -Hn); "  # sudo leaves a thousand


class Traces:
    """What is left of a machine while it still runs: its tree, its processes, and what was measured all the time."""

    def __init__(self, tenant: Tenant, samples: list[Sample]) -> None:
        first = json.decode((tenant.live / RECORD).read_bytes(), type=Record).first
        self._root = Path(f"/proc/{first.pid}/root")
        self._cgroup = f"{tenant.node.config.prefix}/{tenant.id}"
        self.processes = max(each.processes for each in samples)
        self.memory_bytes = max(each.memory_bytes for each in samples)
        self.oom_kills = max(each.oom_kills for each in samples)
        self.cpu_seconds = samples[-1].cpu_seconds - samples[0].cpu_seconds

    def counted(self) -> int:
        """By the bomb itself, where nobody else can."""
        try:
            return int((self._root / "run/count").read_text() or 0)
        except FileNotFoundError:
            return 0

    def sizes(self, place: str) -> list[int]:
        return [each.lstat().st_size for each in self._root.glob(place)]

    def entries(self, place: str) -> int:
        return sum(len(os.listdir(each)) for each in self._root.glob(place))

    def full(self, place: str) -> bool:
        return os.statvfs(self._root / place).f_bavail == 0

    def open_files(self) -> int:
        """Of the process that has the most."""
        most = 0
        for hierarchy in layout.detect().hierarchies():
            for file in (hierarchy / self._cgroup).glob("**/cgroup.procs"):
                for pid in file.read_text().split():
                    most = max(most, len(os.listdir(f"/proc/{pid}/fd")) if os.path.exists(f"/proc/{pid}/fd") else 0)
        return most


@dataclass(frozen=True)
class Bomb:
    script: str  # bash, as root
    went_off: Callable[[Traces], bool]


def _python(*lines: str) -> str:
    return "python3 -c '\nimport os, socket, time\n" + "\n".join(lines) + "'"


_COUNT = '  n += 1\n  if n % 100 == 0: open("/run/count", "w").write(str(n))'
BOMBS = {
    "processes": Bomb(
        _python("while True:", "  try: os.fork()", "  except OSError: pass"), lambda seen: seen.processes > 200
    ),
    "memory": Bomb(
        "while :; do python3 -c '\na = []\nwhile True: a.append(bytearray(1 << 24))'; done",
        lambda seen: seen.oom_kills > 0,
    ),
    "shared memory": Bomb(
        "head -c 4G /dev/zero >/dev/shm/fill; head -c 4G /dev/zero >/run/fill; sleep 100",
        lambda seen: seen.full("dev/shm"),
    ),
    "disk": Bomb(
        "head -c 4G /dev/zero >/fill; head -c 4G /dev/zero >/tmp/fill; sleep 100",
        lambda seen: sum(seen.sizes("fill")) > 50 * _MIB,
    ),
    "files": Bomb("cd /var/tmp; seq 1000000 | xargs touch; sleep 100", lambda seen: seen.entries("var/tmp") > 2000),
    "open files": Bomb(
        _MORE_FILES + _python("while True:", "  try: os.dup(0)", "  except OSError: pass"),
        lambda seen: seen.open_files() >= _MANY_FILES,
    ),
    "sockets": Bomb(
        _MORE_FILES
        + _python("a = []", "try:", "  while True: a += socket.socketpair()", "except OSError: time.sleep(100)"),
        lambda seen: seen.open_files() >= _MANY_FILES,
    ),
    "logs": Bomb(
        "n=0; while :; do for each in /proc/[0-9]*/fd/[12]; do\n"
        "yes | head -c 1M >$each && n=$((n + 1)) && echo $n >/run/count; done; done",
        lambda seen: seen.counted() > 10,
    ),
    "processors": Bomb(
        "for i in $(seq 16); do (while :; do :; done) & done; wait", lambda seen: seen.cpu_seconds > 1.0
    ),
    "a large directory": Bomb(
        "cd $(mktemp -d); seq -f %0200.0f 1000000 | xargs touch; sleep 100",
        lambda seen: seen.entries("tmp/tmp.*") > 1000,
    ),
    "holes": Bomb(
        "cd /var/tmp; for i in $(seq 2000); do truncate -s 8T $i; done; cat * >/dev/null; sleep 100",
        lambda seen: sum(seen.sizes("var/tmp/*")) >> 40 > 100,
    ),
    "orphans": Bomb(
        _python(
            "n = 0",
            "while True:",
            "  try:",
            "    if os.fork() == 0:",
            "      if os.fork(): os._exit(0)",
            "      os._exit(0)",
            "  except OSError: continue",
            _COUNT,
        ),
        lambda seen: seen.counted() >= 100,
    ),
    "nested directories": Bomb(
        _python(
            'os.chdir("/var/tmp")',
            "n = 0",
            "while True:",
            '  try: os.mkdir("d"); os.chdir("d")',
            "  except OSError: continue",
            _COUNT,
        ),
        lambda seen: seen.counted() >= 1000,
    ),
}
