"""Scrub: a slot that an operator gives back is free when its node has proved that nothing of a tenant is on it (I15).

deliver -> (the node's teardown of a machine that never was, with the slot's GPUs) -> free, or quarantined again
"""

import msgspec

from gpuaas.control.store import capacity, claims, identity, slots, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.ids import is_id
from gpuaas.model.node import Hold, Slot
from gpuaas.wire.node import Condition, Scrub, Spec

KIND = "sc"  # of its id: new each time, so that no node ever takes an old answer for this one's


def is_scrub(id: str) -> bool:
    return is_id(id, KIND)


def start(tx: Tx, slot: Slot, held: Hold | None) -> None:
    """Under the node's lock. A slot that nobody has is claimed until the node gives evidence.

    Whose machine has it will have it scrubbed after them. Where a scrub has it, the node is asked once more: its answer
    may have gone to a server that did not know this yet.
    """
    if held is None:
        id = tx.ids.new(KIND)
        claims.take(tx, id, [slot.id])
        claims.scrubbing(tx, id)
    elif is_scrub(held.holder_id):
        id = held.holder_id
    else:
        return
    specs.write(tx, slot.node_id, id, 1, specs.generation(tx, slot.node_id, id) + 1, body=None)


def start_if_unclean(tx: Tx, node_id: str, slot_id: str) -> None:
    """For a slot that has just been approved: a node that reports a slot in another shape makes no GPU clean."""
    (slot,) = slots.by_ids(tx, [slot_id])
    if slots.unclean(tx, node_id, [*slot.gpus, *([slot.card] if slot.card else [])]):
        capacity.lock(tx, [node_id])
        start(tx, slot, None)


def told(tx: Tx, spec: Spec) -> Spec:
    """With the GPUs that are to be scrubbed, while they are."""
    return msgspec.structs.replace(spec, gpus=claims.gpus(tx, spec.id)) if is_scrub(spec.id) else spec


def observe(tx: Tx, node_id: str, condition: Condition) -> None:
    """What the node says of it. No evidence is not clean: an agent that is too old to scrub a slot gives none."""
    held = [slot for slot in slots.by_ids(tx, claims.slot_ids(tx, condition.id)) if slot.node_id == node_id]
    if condition.state != "gone" or not held:
        return
    said = {scrub.gpu: scrub for scrub in condition.scrubs}
    for slot in held:
        bad = [f"{gpu}: {_evidence(said.get(gpu))}" for gpu in slot.gpus if gpu not in said or not said[gpu].clean]
        if bad and slot.state == "approved":
            reason = "scrub failed: " + "; ".join(bad)
            slots.move(tx, slot, "quarantine", reason)
            org_id = identity.platform_org_id(tx)
            tx.audit("slot.quarantined", org_id=org_id, kind="node", id=node_id, slot=slot.id, reason=reason)
    claims.free(tx, condition.id, node_id, [msgspec.to_builtins(scrub) for scrub in condition.scrubs])


def _evidence(scrub: Scrub | None) -> str:
    return scrub.evidence if scrub else "its node gave no evidence; upgrade its agent"
