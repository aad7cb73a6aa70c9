"""What an allocation may use: cpu, cpuset, memory and swap, pids, devices. On v1 or v2, wherever each is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.cgroup import Cgroup, write

_PERIOD_MICROSECONDS = 100_000


@dataclass(frozen=True)
class Limits:
    """None: no limit of its own. `swap_bytes` comes on top of `memory_bytes`."""

    cpus: float | None = None
    cpuset: str | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = 0
    pids: int | None = None


def limit(cgroup: Cgroup, limits: Limits) -> None:
    """Safe to repeat and to change with processes inside. HostError where the host cannot enforce what is asked."""
    _limit_cpu(cgroup, limits)
    if limits.cpuset is not None:
        write(_where(cgroup, "cpuset") / "cpuset.cpus", limits.cpuset)
    if limits.pids is not None or _kept(cgroup, "pids"):
        write(_where(cgroup, "pids") / "pids.max", "max" if limits.pids is None else str(limits.pids))
    if limits.memory_bytes is not None or _kept(cgroup, "memory"):
        _limit_memory(cgroup, limits.memory_bytes, limits.swap_bytes)


def allow_devices(cgroup: Cgroup, rules: Sequence[str]) -> bool:
    """Exactly these, like `c 195:0 rw`; to be called before any process and any child is inside.

    False on v2: there a BPF program does it, which the OCI runtime attaches from `linux.resources.devices`.
    """
    place = cgroup.layout.v1.get("devices")
    if place is None:
        return False
    directory = place / cgroup.path
    if sorted((directory / "devices.list").read_text().splitlines()) != sorted(rules):
        write(directory / "devices.deny", "a")
        for rule in rules:
            write(directory / "devices.allow", rule)
    return True


def _limit_cpu(cgroup: Cgroup, limits: Limits) -> None:
    if limits.cpus is None and not _kept(cgroup, "cpu"):
        return
    quota = None if limits.cpus is None else round(limits.cpus * _PERIOD_MICROSECONDS)
    directory = _where(cgroup, "cpu")
    if "cpu" in cgroup.layout.v1:
        write(directory / "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
        write(directory / "cpu.cfs_quota_us", str(-1 if quota is None else quota))
    else:
        write(directory / "cpu.max", f"{'max' if quota is None else quota} {_PERIOD_MICROSECONDS}")


def _limit_memory(cgroup: Cgroup, memory: int | None, swap: int | None) -> None:
    directory = _where(cgroup, "memory")
    if "memory" not in cgroup.layout.v1:
        write(directory / "memory.max", "max" if memory is None else str(memory))
        if (directory / "memory.swap.max").exists():
            write(directory / "memory.swap.max", "max" if memory is None or swap is None else str(swap))
        return
    both = None if memory is None or swap is None else memory + swap
    files = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": both}
    wanted = [(directory / name, str(-1 if value is None else value)) for name, value in files.items()]
    wanted = [(file, value) for file, value in wanted if file.exists()]  # counting swap may be off
    # Memory may at no time be more than memory and swap together: when it grows, the sum must grow first.
    try:
        for file, value in wanted:
            write(file, value)
    except HostError:
        for file, value in reversed(wanted):
            write(file, value)


def _kept(cgroup: Cgroup, controller: str) -> bool:
    return controller in cgroup.layout.v1 or controller in cgroup.layout.v2_controllers


def _where(cgroup: Cgroup, controller: str) -> Path:
    if controller in cgroup.layout.v1:
        return cgroup.layout.v1[controller] / cgroup.path
    if cgroup.layout.v2 is None or controller not in cgroup.layout.v2_controllers:
        raise HostError("limit", cgroup.path, f"this host has no {controller} controller", transient=False)
    return cgroup.layout.v2 / cgroup.path
