"""Which of several possible places is best: the smallest tuple wins."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from gpuaas.model.placement import NodeView, SlotView, most_linked, most_together

Score = tuple[bool, int, int, int, int, str]
Slots = Sequence[SlotView]
Near = Callable[[SlotView], Hashable]  # the same answer: neighbours

LINKED, NEAR, APART = range(3)


def _linked(slot: SlotView) -> Hashable:
    return slot.linked


def _numa(slot: SlotView) -> Hashable:
    return slot.numa


def _both(slot: SlotView) -> Hashable:
    return slot.linked, slot.numa


def packing(node: NodeView, free: Slots, chosen: Slots) -> Score:
    """A tenant's own node first; neighbours stay together; nodes in use are filled, whole ones and groups kept free."""
    return node.org_id is None, apart(chosen), _gpus(free), most_linked(free), most_together(free), node.id


def apart(chosen: Slots) -> int:
    """How far from each other the GPUs of one machine are."""
    if len({slot.linked for slot in chosen}) == 1:
        return LINKED
    return NEAR if len({slot.numa for slot in chosen}) == 1 else APART


def neighbours(free: Slots, needed_gpus: int) -> list[SlotView]:
    """The slots to take on one node: linked GPUs, else those of one NUMA domain, else any; always from where the fewest
    are left that are enough, so that whole groups stay whole."""
    if needed_gpus == 0:
        return sorted((slot for slot in free if slot.gpu_count == 0), key=_first)[:1]
    linked, numa = _sizes(free, _linked), _sizes(free, _numa)

    def left(domain: Slots) -> tuple[object, ...]:
        least = min(domain, key=_first)
        return linked[least.linked], _gpus(domain), numa[least.numa], least.numa, least.id

    for near in (_both, _linked, _numa):
        for domain in sorted(_by(free, near), key=left):
            if _gpus(domain) >= needed_gpus and (taken := _gather(domain, needed_gpus, _both)):
                return taken
    return _gather(free, needed_gpus, _linked) or _take(free, needed_gpus)


def _gather(slots: Slots, needed_gpus: int, near: Near) -> list[SlotView]:
    """From as few groups as possible: the smallest that has all that is missing, else the largest as a whole."""
    groups = sorted(_by(slots, near), key=lambda group: (_gpus(group), min(group, key=_first).id))
    taken: list[SlotView] = []
    while needed_gpus and groups:
        enough = [group for group in groups if _gpus(group) >= needed_gpus]
        group = enough[0] if enough else groups[-1]
        groups.remove(group)
        part = _take(group, needed_gpus, all_of_it=False)
        taken += part
        needed_gpus -= _gpus(part)
    return taken if needed_gpus == 0 else []


def _take(slots: Slots, needed_gpus: int, all_of_it: bool = True) -> list[SlotView]:
    """Large ones first, until the GPUs add up exactly."""
    taken: list[SlotView] = []
    for slot in sorted(slots, key=lambda slot: (-slot.gpu_count, _first(slot))):
        if 0 < slot.gpu_count <= needed_gpus:
            taken.append(slot)
            needed_gpus -= slot.gpu_count
    return taken if needed_gpus == 0 or not all_of_it else []


def _by(slots: Slots, near: Near) -> list[list[SlotView]]:
    found: dict[Hashable, list[SlotView]] = defaultdict(list)
    for slot in slots:
        found[near(slot)].append(slot)
    return list(found.values())


def _sizes(slots: Slots, near: Near) -> dict[Hashable, int]:
    return {near(group[0]): _gpus(group) for group in _by(slots, near)}


def _gpus(slots: Slots) -> int:
    return sum(slot.gpu_count for slot in slots)


def _first(slot: SlotView) -> tuple[int, str]:
    return slot.numa, slot.id
