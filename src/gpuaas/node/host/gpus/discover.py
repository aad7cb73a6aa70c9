"""All GPUs of this host, from every source. The composer's one call; the parts are tested with recorded libraries."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuaas.node.host.gpus import amd, nvml, pci
from gpuaas.node.host.gpus.gpu import Found, leftovers


def discover(
    load_nvml: Callable[[], nvml.Nvml] = nvml.load,
    load_amd: Callable[[], amd.AmdSmi] = amd.load,
    sysfs: Path = pci.SYSFS,
    proc: Path = nvml.PROC,
) -> Found:
    found = Found()
    silent: dict[str, str] = {}
    try:
        found += nvml.read(load_nvml(), sysfs, proc)
    except nvml.Unavailable as error:
        silent["nvidia"] = str(error)
    try:
        found = _beside(found, amd.read(load_amd(), sysfs))
    except amd.Unavailable as error:
        silent["amd"] = str(error)
    return Found(found.gpus, found.unusable + leftovers(found, silent, sysfs))


def _beside(first: Found, second: Found) -> Found:
    """Two vendors in one machine: numbers and names of slots must not meet."""
    if not first.gpus:
        return first + second
    start = len(first.gpus)
    group = 1 + max((gpu.link_group for gpu in first.gpus if gpu.link_group is not None), default=-1)
    moved = [
        replace(
            gpu,
            index=start + gpu.index,
            slot=f"{gpu.vendor}-{gpu.slot}",
            link_group=None if gpu.link_group is None else group + gpu.link_group,
        )
        for gpu in second.gpus
    ]
    return first + Found(moved, second.unusable)
