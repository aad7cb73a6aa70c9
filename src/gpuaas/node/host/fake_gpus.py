"""The GPUs that a fake host can have, and the inventory it reports for them.

`8xH100` is eight of them. `2xH100:7x1g.10gb` is two, each cut into seven MIG instances; `:3x1g.10gb+1x4g.40gb` cuts
into different ones. `1xH100:7x1g.10gb,3xH100` cuts the first of four.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from gpuaas.node.host.gpus.gpu import Gpu, report
from gpuaas.wire.node import Inventory, SlotProposal


@dataclass(frozen=True)
class _Model:
    vendor: str
    memory_mib: int
    driver: str
    linked: int = 1  # so many neighbours are linked directly
    mig_gib: int = 0  # what its instances can have together; 0: it cannot be cut


@dataclass(frozen=True)
class Layout:
    """For each card the profiles that it is cut into; none: it is whole."""

    model: str
    cards: tuple[tuple[str, ...], ...]


MODELS = {
    "H100": _Model("nvidia", 81559, "550.90", linked=8, mig_gib=80),
    "A100": _Model("nvidia", 81920, "550.90", linked=2, mig_gib=80),  # PCIe cards, bridged in pairs
    "L4": _Model("nvidia", 23034, "550.90"),
    "MI300X": _Model("amd", 196608, "6.8.5", linked=8),
}
CPUS_PER_GPU = 16
MEMORY_MIB_PER_GPU = 131072
MOST = 999
_MOST_COMPUTE = 7  # the parts of a GPU's compute units that MIG gives out
_GROUP = re.compile(r"([1-9][0-9]{0,2})x([A-Za-z0-9]+)(?::(.+))?")
_CUT = re.compile(r"([1-7])x([1-7])g\.([1-9][0-9]{0,2})gb")


@cache
def parse(text: str) -> Layout:
    cards: list[tuple[str, ...]] = []
    models = set()
    for part in text.split(","):
        match = _GROUP.fullmatch(part)
        if match is None or match[2] not in MODELS:
            raise ValueError(f"{text!r} is not a number of GPUs like 8xH100; the models are {', '.join(MODELS)}")
        models.add(match[2])
        cards += [_cut(match[2], match[3]) if match[3] else ()] * int(match[1])
    if len(models) > 1:
        raise ValueError(f"{text!r} has several models; simulated GPUs of one host are of one model")
    if sum(len(cut) or 1 for cut in cards) > MOST:
        raise ValueError(f"{text!r} is more than {MOST} GPUs and instances")
    return Layout(models.pop(), tuple(cards))


def _cut(model: str, text: str) -> tuple[str, ...]:
    profiles: list[str] = []
    compute = memory = 0
    for part in text.split("+"):
        match = _CUT.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r} is not a number of MIG instances like 7x1g.10gb or 3x1g.10gb+1x4g.40gb")
        count, units, gib = int(match[1]), int(match[2]), int(match[3])
        profiles += [f"{units}g.{gib}gb"] * count
        compute, memory = compute + count * units, memory + count * gib
    if not MODELS[model].mig_gib:
        raise ValueError(f"{model} cannot be cut into MIG instances")
    if compute > _MOST_COMPUTE or memory > MODELS[model].mig_gib:
        limits = f"{_MOST_COMPUTE} parts of its compute units and {MODELS[model].mig_gib} GB"
        raise ValueError(f"{text!r} is more than one {model} has: {limits}")
    return tuple(profiles)


@cache
def uuid(host: str, index: int) -> str:
    """Of a card: stable for a host, and another one on every other host."""
    return "GPU-" + hashlib.sha256(f"{host}/{index}".encode()).hexdigest()[:32]


def gpus(text: str, host: str) -> list[Gpu]:
    """Whole GPUs and instances, as discovery finds real ones."""
    layout = parse(text)
    return [gpu for card in range(len(layout.cards)) for gpu in _of_card(layout, host, card)]


def _of_card(layout: Layout, host: str, card: int) -> Iterator[Gpu]:
    model, cards = MODELS[layout.model], layout.cards
    whole = Gpu(
        uuid=uuid(host, card),
        index=sum(len(cut) or 1 for cut in cards[:card]),
        vendor=model.vendor,
        model=layout.model,
        memory_mib=model.memory_mib,
        driver=model.driver,
        numa=card * 2 // len(cards),
        slot=f"gpu{card}",
    )
    if not cards[card]:
        yield replace(whole, link_group=_link_group(model, cards, card))
    for number, profile in enumerate(cards[card]):
        name = hashlib.sha256(f"{host}/{card}/{number}/{profile}".encode()).hexdigest()[:32]
        yield replace(
            whole,
            uuid=f"MIG-{name}",
            index=whole.index + number,
            model=f"{layout.model} MIG {profile}",
            memory_mib=int(re.sub(r".*\.|gb", "", profile)) * 1024,
            slot=f"{whole.slot}-mig{number}",
            parts=len(cards[card]),
            card=whole.uuid,
        )


def _link_group(model: _Model, cards: tuple[tuple[str, ...], ...], card: int) -> int | None:
    """Of whole ones; None for one that would be alone in its group."""
    group = card // model.linked
    near = [other for other in range(len(cards)) if other // model.linked == group and not cards[other]]
    return group if len(near) > 1 else None


def inventory(text: str, host: str, address: str, cpus: int | None = None, memory_mib: int | None = None) -> Inventory:
    found = gpus(text, host)
    cards = len(parse(text).cards)
    cpus = cpus or CPUS_PER_GPU * cards
    memory_mib = memory_mib or MEMORY_MIB_PER_GPU * cards
    slots = [
        SlotProposal(
            gpu.slot,
            [gpu.uuid],
            max(1, cpus // (cards * gpu.parts)),
            max(16, memory_mib // (cards * gpu.parts)),
            gpu.numa,
        )
        for gpu in found
    ]
    return Inventory(host, address, cpus, memory_mib, [report(gpu) for gpu in found], slots, architecture="amd64")
