"""From what a node reports to slots: new ones are proposed, missing and unhealthy ones are taken out of service."""

import logging
from typing import Any

from gpuaas.control.operations import scrub
from gpuaas.control.store import identity, slots
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Node, Slot
from gpuaas.wire.node import GpuReport, Inventory, SlotProposal

log = logging.getLogger(__name__)

MISSING = "the node no longer reports it"


def reconcile(tx: Tx, node: Node, inventory: Inventory) -> None:
    """A node never changes an approved slot by saying so: the old one goes out of service, the new one is proposed."""
    models = {gpu.uuid: gpu.model for gpu in inventory.gpus}
    troubles = {gpu.uuid: gpu.trouble for gpu in inventory.gpus if gpu.trouble}
    have = {slot.name: slot for slot in slots.slots(tx, node.id)}
    holders = slots.holders(tx, node.id)
    wanted = {proposal.name: proposal for proposal in inventory.slots}
    for name, slot in have.items():
        # A node proposes no slot for a GPU that is not well. That one is not missing: it comes back with its history.
        unwell = name not in wanted and any(gpu in troubles for gpu in slot.gpus)
        if not unwell and (name not in wanted or not _same(slot, wanted[name])):
            _take_out(tx, slot, in_use=slot.id in holders)
    reported = {gpu.uuid: gpu for gpu in inventory.gpus}
    current = {slot.name: slot for slot in slots.slots(tx, node.id)}
    for name, proposal in wanted.items():
        place = _place(proposal, reported)
        if name not in current:
            _propose(tx, node, proposal, models, place)
        elif any(getattr(current[name], what) != value for what, value in place.items()):
            slots.set_place(tx, current[name], **place)
    if troubles:
        for slot in slots.slots(tx, node.id):
            _set_aside_if_unwell(tx, slot, troubles)


def _same(slot: Slot, proposal: SlotProposal) -> bool:
    return (list(slot.gpus), slot.cpus, slot.memory_mib) == (proposal.gpus, proposal.cpus, proposal.memory_mib)


def _take_out(tx: Tx, slot: Slot, in_use: bool) -> None:
    if in_use:
        if slot.state == "approved":
            slots.move(tx, slot, "quarantine", MISSING)
    else:
        slots.move(tx, slot, "retire", MISSING)


def _place(proposal: SlotProposal, reported: dict[str, GpuReport]) -> dict[str, Any]:
    """What all of its GPUs have in common."""
    gpus = [reported[gpu] for gpu in proposal.gpus if gpu in reported]
    groups, cards = {gpu.link_group for gpu in gpus}, {gpu.card or None for gpu in gpus}
    return {
        "numa": proposal.numa,
        "link_group": groups.pop() if len(groups) == 1 else None,
        "card": cards.pop() if len(cards) == 1 else None,
    }


def _propose(tx: Tx, node: Node, proposal: SlotProposal, models: dict[str, str], place: dict[str, Any]) -> None:
    kinds = sorted({models.get(gpu, "unknown") for gpu in proposal.gpus})
    state = "approved" if node.approve_slots else "proposed"
    take_back = tx.attempt()
    made = slots.insert_slot(
        tx,
        node.id,
        state,
        name=proposal.name,
        gpu_model=kinds[0] if len(kinds) == 1 else "+".join(kinds),
        gpus=proposal.gpus,
        cpus=proposal.cpus,
        memory_mib=proposal.memory_mib,
        **place,
    )
    if made is None:
        take_back()
        log.error("a node reports GPUs that are in another slot", extra={"fields": {"node_id": node.id}})
    else:
        if state == "approved":
            scrub.start_if_unclean(tx, node.id, made)
        tx.wake("placement")


def _set_aside_if_unwell(tx: Tx, slot: Slot, troubles: dict[str, str]) -> None:
    """Whoever has it keeps it, and is told by the machine's health; nobody else gets it before an operator looked."""
    reason = "; ".join(f"{gpu}: {troubles[gpu]}" for gpu in slot.gpus if gpu in troubles)
    if reason and slot.state == "approved":
        slots.move(tx, slot, "quarantine", reason)
        org_id = identity.platform_org_id(tx)
        tx.audit("slot.quarantined", org_id=org_id, kind="node", id=slot.node_id, slot=slot.id, reason=reason)
