"""Why a node or a slot cannot be used. Each filter answers None (usable) or a reason (code, message)."""

from collections.abc import Callable

from gpuaas.model.placement import NodeView, SlotView, Wanted

Why = tuple[str, str]
NodeFilter = Callable[[NodeView, Wanted], Why | None]
SlotFilter = Callable[[SlotView, Wanted], Why | None]


def other_tenants_pool(node: NodeView, wanted: Wanted) -> Why | None:
    if node.org_id is not None and node.org_id != wanted.org_id:
        return "other_pool", "the machine belongs to another tenant's pool"
    return None


def not_connected(node: NodeView, wanted: Wanted) -> Why | None:
    if node.state != "ready":
        return "node_not_connected", "the machine is not connected right now"
    return None


def not_healthy(node: NodeView, wanted: Wanted) -> Why | None:
    return None if node.ready else ("node_not_ready", "the machine is being prepared or checked")


def being_drained(node: NodeView, wanted: Wanted) -> Why | None:
    return ("node_drained", "the machine gets nothing new, because somebody will work on it") if node.drained else None


def held_for_another(node: NodeView, wanted: Wanted) -> Why | None:
    if node.held is not None and node.held != wanted.group_id:
        return "node_held", "the machine is kept free for somebody who is first in line"
    return None


def taken_as_a_whole(node: NodeView, wanted: Wanted) -> Why | None:
    """A slot that was approved or returned later is not for others either."""
    if any(slot.claimed and slot.alone for slot in node.slots):
        return "node_taken", "somebody has the whole machine"
    return None


def cannot_use_the_runtime(node: NodeView, wanted: Wanted) -> Why | None:
    why = wanted.unfit.get(node.id)
    return None if why is None else ("runtime_unfit", f"the machine cannot use the runtime: {why}")


def slot_drained(slot: SlotView, wanted: Wanted) -> Why | None:
    return ("slot_drained", "a slot gets nothing new, because somebody will work on it") if slot.drained else None


def not_approved(slot: SlotView, wanted: Wanted) -> Why | None:
    if slot.state == "quarantined":
        return "slot_quarantined", "a slot is out of service for inspection"
    if slot.state != "approved":
        return "slot_not_approved", "a slot waits for an operator's approval"
    return None


def other_model(slot: SlotView, wanted: Wanted) -> Why | None:
    if slot.gpu_model != wanted.gpu_model:
        return "other_gpu_model", f"a slot has another GPU than {wanted.gpu_model or 'none'}"
    return None


def in_use(slot: SlotView, wanted: Wanted) -> Why | None:
    return ("slot_in_use", "a slot is in use or being scrubbed") if slot.claimed else None


def reserved(slot: SlotView, wanted: Wanted) -> Why | None:
    if any(kept.meets(wanted.starts_at, wanted.free_at) for kept in slot.kept):
        return "slot_reserved", "a slot is reserved before the machine would be gone for certain"
    return None


NODE_FILTERS: tuple[NodeFilter, ...] = (
    other_tenants_pool,
    not_connected,
    not_healthy,
    being_drained,
    held_for_another,
    taken_as_a_whole,
    cannot_use_the_runtime,
)
SLOT_FILTERS: tuple[SlotFilter, ...] = (not_approved, other_model, in_use, slot_drained, reserved)
