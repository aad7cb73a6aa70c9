"""The GPUs that a fake host can have, and the inventory it reports for them."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache

from gpuaas.wire.node import GpuReport, Inventory, SlotProposal


@dataclass(frozen=True)
class _Model:
    vendor: str
    memory_mib: int
    driver: str
    linked: int = 1  # so many neighbours are linked directly


MODELS = {
    "H100": _Model("nvidia", 81559, "550.90", linked=8),
    "A100": _Model("nvidia", 81920, "550.90", linked=2),  # PCIe cards, bridged in pairs
    "L4": _Model("nvidia", 23034, "550.90"),
    "MI300X": _Model("amd", 196608, "6.8.5", linked=8),
}
CPUS_PER_GPU = 16
MEMORY_MIB_PER_GPU = 131072


def parse(text: str) -> tuple[int, str]:
    """`8xH100` is eight of them."""
    match = re.fullmatch(r"([1-9][0-9]{0,2})x([A-Za-z0-9]+)", text)
    if match is None or match[2] not in MODELS:
        raise ValueError(f"{text!r} is not a number of GPUs like 8xH100; the models are {', '.join(MODELS)}")
    return int(match[1]), match[2]


@cache
def uuid(host: str, index: int) -> str:
    """Stable for a host, and another one on every other host."""
    return "GPU-" + hashlib.sha256(f"{host}/{index}".encode()).hexdigest()[:32]


def numa(index: int, count: int) -> int:
    """Half of them are near each of two CPUs."""
    return index * 2 // count


def link_group(name: str, index: int, count: int) -> int | None:
    """None for one that would be alone in its group."""
    size = MODELS[name].linked
    alone = size == 1 or (index == count - 1 and index % size == 0)
    return None if alone else index // size


def inventory(gpus: str, host: str, address: str, cpus: int | None = None, memory_mib: int | None = None) -> Inventory:
    count, name = parse(gpus)
    model = MODELS[name]
    cpus = cpus or CPUS_PER_GPU * count
    memory_mib = memory_mib or MEMORY_MIB_PER_GPU * count
    reports = [
        GpuReport(
            uuid(host, i),
            i,
            model.vendor,
            name,
            model.memory_mib,
            model.driver,
            numa=numa(i, count),
            link_group=link_group(name, i, count),
        )
        for i in range(count)
    ]
    slots = [
        SlotProposal(f"gpu{gpu.index}", [gpu.uuid], max(1, cpus // count), max(16, memory_mib // count), gpu.numa)
        for gpu in reports
    ]
    return Inventory(host, address, cpus, memory_mib, reports, slots)
