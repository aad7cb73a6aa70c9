"""Which GPUs this host has, which of them can be given out, and as which slots.

Vendors' libraries are asked first (`nvml`, `amd`); what they do not know but the PCI bus does is named with a reason,
because "no GPUs" on a machine full of them is the most common trouble of a new node.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuaas.node.host.gpus import pci
from gpuaas.wire.node import GpuReport, SlotProposal

_NOT_IN_A_LABEL = re.compile(r"[^A-Za-z0-9._:+@/ -]+")
_MIB_PER_STEP = 1024


@dataclass(frozen=True)
class Gpu:
    """One that can be given out on its own: a whole GPU, or a MIG instance."""

    uuid: str
    index: int
    vendor: str
    model: str
    memory_mib: int
    driver: str = ""
    toolkit: str = ""  # the newest CUDA or ROCm that the driver can run
    numa: int = 0
    link_group: int | None = None  # GPUs with the same number are linked directly (`links`)
    bus: str = ""
    nodes: tuple[str, ...] = ()  # the device nodes on the host that are this GPU's and no other's
    cdi: tuple[str, ...] = ()  # the names by which a CDI spec may call it, best first
    slot: str = ""
    parts: int = 1  # a MIG instance is one of so many of its GPU
    card: str = ""  # the UUID of the GPU that a MIG instance is a part of; empty for a whole one
    trouble: str = ""  # why it must not be given out


@dataclass(frozen=True)
class Unusable:
    """There, but not to be given out, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Found:
    gpus: list[Gpu] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)

    def __add__(self, other: "Found") -> "Found":
        return Found(self.gpus + other.gpus, self.unusable + other.unusable)


def label(text: str) -> str:
    """What the wire accepts as a name: a vendor's library may say anything."""
    return " ".join(_NOT_IN_A_LABEL.sub(" ", text).split()).strip(" ._:+@/-")[:128] or "unknown"


def report(gpu: Gpu) -> GpuReport:
    driver = label(gpu.driver) if gpu.driver else ""
    return GpuReport(
        label(gpu.uuid),
        gpu.index,
        label(gpu.vendor),
        label(gpu.model),
        gpu.memory_mib,
        driver,
        toolkit=label(gpu.toolkit) if gpu.toolkit else "",
        trouble=gpu.trouble[:2000],
        numa=gpu.numa,
        link_group=gpu.link_group,
        card=label(gpu.card) if gpu.card else "",
    )


def slots(gpus: Sequence[Gpu], cpus: int, memory_mib: int, installed: int = 0) -> list[SlotProposal]:
    """One slot for each GPU that is well.

    `installed` is how many whole GPUs the node was set up with: if one falls off the bus, the shares of the others
    must not change, because the server takes a changed slot out of service. Memory comes in steps of one GiB for the
    same reason: a new kernel reports a few MiB more or less.
    """
    whole = max(installed, cards(gpus), 1)
    proposals = []
    for gpu in gpus:
        share = whole * gpu.parts
        mib = memory_mib // share
        mib = mib // _MIB_PER_STEP * _MIB_PER_STEP or max(16, mib)
        if not gpu.trouble:
            name = label(gpu.slot or f"gpu{gpu.index}")
            proposals.append(SlotProposal(name, [label(gpu.uuid)], max(1, cpus // share), mib, gpu.numa))
    return proposals


def cards(gpus: Sequence[Gpu]) -> int:
    """How many whole GPUs these are, or are parts of."""
    return len({gpu.card or gpu.uuid for gpu in gpus})


def leftovers(known: Found, reasons: dict[str, str], sysfs: Path = pci.SYSFS) -> list[Unusable]:
    """The cards on the bus that no library told us of. `reasons` says for each vendor why its library is silent."""
    told = {gpu.bus for gpu in known.gpus} | {each.what for each in known.unusable}
    return [
        Unusable(card.address, _why(card, reasons.get(card.vendor, "")))
        for card in pci.cards(sysfs)
        if card.address not in told
    ]


def _why(card: pci.Card, silent: str) -> str:
    name = f"{card.vendor} {card.device}"
    if card.vendor == "intel":
        return f"{name}: GPUs of this vendor are not supported"
    if not card.driver:
        return f"{name}: no driver is bound to it; install the vendor's driver"
    if card.driver == "vfio-pci":
        return f"{name}: it is set aside for virtual machines (vfio-pci)"
    if card.driver not in ("nvidia", "amdgpu"):
        return f"{name}: it is bound to {card.driver}; install the vendor's driver"
    return f"{name}: the driver {card.driver} has it, but {silent or 'its library does not list it'}"
