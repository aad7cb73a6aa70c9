"""Simulated GPUs (`--simulate-gpus 8xH100`): real device nodes, real bytes; so isolation and scrubbing are real too.

A node's major belongs to no driver: opening it answers ENXIO when the device cgroup allows it and EPERM when it does
not. The bytes of a small sparse file stand for the GPU's memory. All of it lives in one directory of ours, mode 0700:

    plan.json          which GPUs, and their device numbers
    dev/               gpu0 ..., the control nodes, and card0 ... of those that are cut into MIG instances
    memory/0 ...       the bytes; bound into the container, as the nodes are. Like a GPU's, they end with the power:
                       both directories are file systems of their own, so that no machine reads where they are here
    health/0 ...       a file here is why the GPU is unwell: `echo 'XID 79' > health/3`
    scrub/0 ...        a file here is why its scrub fails
    resets/0 ...       how often it was reset
    cdi/               the CDI spec, written by `simulated_cdi`
"""

import os
import re
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host import fake_gpus
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.gpus.gpu import Gpu
from gpuaas.node.host.gpus.simulated_files import hide, make_memory, make_nodes, unhide

KIND = "gpuaas.dev/gpu"
MEMORY_BYTES = 1024 * 1024
TOOLKITS = {"nvidia": "12.4", "amd": "6.2"}  # CUDA, ROCm
CONTROL_NODES = {"nvidia": ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"), "amd": ("kfd",)}
FIRST_GPU_MINOR = 16
_PLAN = "plan.json"
# For local use by the kernel's own list, and never handed out dynamically.
_MAJORS: tuple[int, ...] = (*range(120, 128), *range(60, 64))
_MINORS_PER_HOST = 1024
_GIVEN = ("dev", "memory")
_DIRECTORIES = (*_GIVEN, "health", "scrub", "resets", "cdi")


class Plan(Struct, frozen=True):
    gpus: str
    host: str
    major: int
    first_minor: int


@dataclass(frozen=True)
class Simulated:
    root: Path
    plan: Plan

    @property
    def vendor(self) -> str:
        return fake_gpus.MODELS[fake_gpus.parse(self.plan.gpus).model].vendor

    def gpus(self) -> list[Gpu]:
        """As they are now: with the trouble that was injected."""
        # Asked for at every heartbeat, and nearly always empty.
        health = self.root / "health"
        unwell = set(os.listdir(health)) if health.is_dir() else set()
        return [
            replace(gpu, trouble=_read_reason(self.root / f"health/{gpu.index}")) if str(gpu.index) in unwell else gpu
            for gpu in _well(self.root, self.plan)
        ]

    def index(self, uuid: str) -> int:
        for gpu in _well(self.root, self.plan):
            if gpu.uuid == uuid:
                return gpu.index
        raise HostError("find", uuid, "this host has no such GPU", transient=False)

    def memory(self, uuid: str) -> Path:
        return self.root / f"memory/{self.index(uuid)}"

    def scrub_trouble(self, uuid: str) -> str:
        return _read_reason(self.root / f"scrub/{self.index(uuid)}")

    def reset(self, uuid: str) -> None:
        path = self.root / f"resets/{self.index(uuid)}"
        path.write_text(str(self.resets(uuid) + 1))

    def resets(self, uuid: str) -> int:
        path = self.root / f"resets/{self.index(uuid)}"
        return int(path.read_text() or 0) if path.exists() else 0

    def clamp(self) -> None:
        """A tenant can make the file of its memory longer, and so fill the host's disk: cut it back."""
        for path in (self.root / "memory").glob("*"):
            if path.stat().st_size > MEMORY_BYTES:
                os.truncate(path, MEMORY_BYTES)


def card_node(gpu: Gpu) -> str:
    """The name of the node that all instances of one GPU share, as those of a real one do."""
    return gpu.slot.partition("-")[0].replace("gpu", "card")


def numbers(gpus: Sequence[Gpu], vendor: str) -> dict[str, int]:
    """The device nodes, and their minors, counted from the first."""
    found = {name: number for number, name in enumerate(CONTROL_NODES[vendor])}
    found |= {f"gpu{gpu.index}": FIRST_GPU_MINOR + gpu.index for gpu in gpus}
    for name in sorted({card_node(gpu) for gpu in gpus if gpu.card}):
        found[name] = FIRST_GPU_MINOR + len(found) - len(CONTROL_NODES[vendor])
    return found


@cache
def _well(root: Path, plan: Plan) -> list[Gpu]:
    found = []
    for gpu in fake_gpus.gpus(plan.gpus, plan.host):
        names = (card_node(gpu), f"gpu{gpu.index}") if gpu.card else (f"gpu{gpu.index}",)
        nodes = tuple(str(root / "dev" / name) for name in names)
        found.append(replace(gpu, toolkit=TOOLKITS[gpu.vendor], nodes=nodes, cdi=(f"{KIND}={gpu.uuid}",)))
    return found


def ensure(root: Path, gpus: str, host: str, proc: Path = Path("/proc")) -> Simulated:
    """Makes the nodes and the memory. Again: keeps numbers and bytes. Raises HostError where nodes cannot work."""
    fake_gpus.parse(gpus)
    disk = FileDisk(root)
    try:
        plan = _plan(disk, root, gpus, host, proc)
        simulated = Simulated(root, plan)
        for name in _DIRECTORIES:
            (root / name).mkdir(mode=0o700, exist_ok=True)
        for directory in given(root):
            hide(directory)
        found = _well(root, plan)
        wanted = numbers(found, simulated.vendor)
        make_nodes(root / "dev", {name: (plan.major, plan.first_minor + number) for name, number in wanted.items()})
        make_memory(root / "memory", {str(gpu.index) for gpu in found}, MEMORY_BYTES)
    except OSError as error:
        raise HostError("simulate", gpus, str(error)) from error
    finally:
        disk.close()
    return simulated


def given(root: Path) -> list[Path]:
    """What is bound into machines from here: each is a mount."""
    return [root / name for name in _GIVEN]


def clear(root: Path) -> None:
    """As a reboot would leave it."""
    for directory in given(root):
        unhide(directory)


def remove(root: Path) -> None:
    """Nothing of it stays. Safe if it never was, or was half-made."""
    clear(root)
    try:
        shutil.rmtree(root)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise HostError("remove", str(root), str(error)) from error


def free_major(devices: str, kept: int | None = None) -> int:
    """A character major that no driver has, from the text of /proc/devices; the one we have, as long as it is free."""
    characters = devices.partition("Block devices:")[0]
    taken = {int(number) for number in re.findall(r"^\s*(\d+) ", characters, re.MULTILINE)}
    if kept is not None and kept not in taken:
        return kept
    for major in _MAJORS:
        if major not in taken:
            return major
    raise HostError("simulate", "GPUs", "every character major for local use belongs to a driver", transient=False)


def _plan(disk: FileDisk, root: Path, gpus: str, host: str, proc: Path) -> Plan:
    """Written before anything is made by it. Two agents on one machine get other minors."""
    data = disk.read(_PLAN)
    try:
        old = msgspec.json.decode(data, type=Plan) if data else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        old = None
    major = free_major((proc / "devices").read_text(), old.major if old else None)
    first_minor = zlib.crc32(os.fsencode(root.resolve())) % 1024 * _MINORS_PER_HOST
    plan = Plan(gpus, host, major, old.first_minor if old else first_minor)
    if plan != old:
        disk.write(_PLAN, msgspec.json.encode(plan))
    return plan


def _read_reason(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            text = file.read(500)
    except OSError:
        return ""
    return re.sub(r"[^ -~]+", " ", text).strip() or "unwell, for no stated reason"
