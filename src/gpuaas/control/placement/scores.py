"""Which of several possible places is best: the smallest tuple wins."""

from collections.abc import Sequence

from gpuaas.model.placement import NodeView, SlotView, most_together

Score = tuple[bool, bool, int, int, str]


def packing(node: NodeView, free: Sequence[SlotView], chosen: Sequence[SlotView]) -> Score:
    """A tenant's own node first; neighbours stay together; nodes in use are filled, whole ones kept free."""
    apart = len({slot.numa for slot in chosen}) > 1
    gpus = sum(slot.gpu_count for slot in free)
    return node.org_id is None, apart, gpus, most_together(free), node.id


def neighbours(free: Sequence[SlotView], needed_gpus: int) -> list[SlotView]:
    """The slots to take on one node: from the NUMA domain with the fewest free GPUs that still fits, else across."""
    by_numa: dict[int, list[SlotView]] = {}
    for slot in sorted(free, key=lambda slot: (slot.numa, slot.id)):
        by_numa.setdefault(slot.numa, []).append(slot)
    for domain in sorted(by_numa.values(), key=lambda slots: (sum(slot.gpu_count for slot in slots), slots[0].id)):
        taken = _take(domain, needed_gpus)
        if taken:
            return taken
    return _take(sorted(free, key=lambda slot: (slot.numa, slot.id)), needed_gpus)


def _take(slots: Sequence[SlotView], needed_gpus: int) -> list[SlotView]:
    """Slots in order until the GPUs add up exactly; a request without GPUs takes one slot without GPUs."""
    if needed_gpus == 0:
        return [slot for slot in slots if slot.gpu_count == 0][:1]
    taken: list[SlotView] = []
    missing = needed_gpus
    for slot in slots:
        if 0 < slot.gpu_count <= missing:
            taken.append(slot)
            missing -= slot.gpu_count
    return taken if missing == 0 else []
