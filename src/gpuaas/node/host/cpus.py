"""Which CPUs a machine runs on: its own, near its GPUs, for as long as there are enough for everybody."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

_NODES = Path("/sys/devices/system/node")


def online() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def choose(count: int, near: Collection[int], taken: Iterable[int], online: Collection[int]) -> str:
    """A cpuset. All of them when the free ones do not suffice: then only the share is limited, not the place."""
    free = [cpu for cpu in online if cpu not in set(taken)]
    if count >= len(online) or count > len(free):
        return written(online)
    close = {cpu for node in near for cpu in _of_node(node)}
    return written(sorted(sorted(free, key=lambda cpu: (cpu not in close, cpu))[:count]))


def parse(cpuset: str) -> list[int]:
    found: list[int] = []
    for part in cpuset.strip().split(",") if cpuset.strip() else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def written(cpus: Iterable[int]) -> str:
    return ",".join(map(str, cpus))


def own(cpuset: str, online: Collection[int]) -> list[int]:
    """What nobody else should get. Nothing when it is every CPU: that is shared."""
    found = parse(cpuset)
    return [] if set(found) >= set(online) else found


def _of_node(node: int) -> list[int]:
    try:
        return parse((_NODES / f"node{node}/cpulist").read_text())
    except OSError:
        return []
