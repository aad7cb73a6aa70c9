"""What an allocation uses now, from its cgroup's counters. A counter that the host does not keep reads as zero."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuaas.node.host.cgroups.cgroup import Cgroup


@dataclass(frozen=True)
class Usage:
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # without what the kernel would give back at once
    pids: int = 0
    out_of_memory_kills: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


def usage(cgroup: Cgroup) -> Usage:
    return _v1(cgroup) if cgroup.layout.v1 else _v2(cgroup)


def _v1(cgroup: Cgroup) -> Usage:
    def read(controller: str, name: str) -> str:
        place = cgroup.layout.v1.get(controller)
        return _read(place / cgroup.path / name) if place else ""

    memory = _number(read("memory", "memory.usage_in_bytes"))
    cache = _field(read("memory", "memory.stat"), "total_inactive_file")
    blocks = read("blkio", "blkio.throttle.io_service_bytes")
    return Usage(
        cpu_seconds=_number(read("cpuacct", "cpuacct.usage")) / 1e9,
        memory_bytes=max(0, memory - cache),
        pids=_number(read("pids", "pids.current")),
        out_of_memory_kills=sum(_kills(cgroup)),
        read_bytes=sum(int(number) for number in re.findall(r" Read (\d+)", blocks)),
        written_bytes=sum(int(number) for number in re.findall(r" Write (\d+)", blocks)),
    )


def _kills(cgroup: Cgroup) -> Iterator[int]:
    """Version 1 counts each where it was, in the cgroup of a session."""
    place = cgroup.layout.v1.get("memory")
    for directory, _, _ in os.walk(place / cgroup.path) if place else ():
        yield _field(_read(Path(directory) / "memory.oom_control"), "oom_kill")


def _v2(cgroup: Cgroup) -> Usage:
    def read(name: str) -> str:
        return _read(cgroup.layout.v2 / cgroup.path / name) if cgroup.layout.v2 else ""

    memory = _number(read("memory.current"))
    blocks = read("io.stat")
    return Usage(
        cpu_seconds=_field(read("cpu.stat"), "usage_usec") / 1e6,
        memory_bytes=max(0, memory - _field(read("memory.stat"), "inactive_file")),
        pids=_number(read("pids.current")),
        out_of_memory_kills=_field(read("memory.events"), "oom_kill"),
        read_bytes=sum(int(number) for number in re.findall(r"\brbytes=(\d+)", blocks)),
        written_bytes=sum(int(number) for number in re.findall(r"\bwbytes=(\d+)", blocks)),
    )


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdecimal() else 0


def _field(text: str, name: str) -> int:
    match = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else 0
