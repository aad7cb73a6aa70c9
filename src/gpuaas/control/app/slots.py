"""Slots and nodes under an operator's hands: drained, set aside, given back, given to a tenant."""

from datetime import timedelta

from gpuaas.control.app import access
from gpuaas.control.app.nodes import Shown, record, show_node
from gpuaas.control.operations import drain as draining
from gpuaas.control.store import allocations, capacity, drains, identity, nodes, slots
from gpuaas.control.store.drains import Drain
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import SLOT
from gpuaas.model.node import Node, Slot


def drain(tx: Tx, caller: Caller, name: str, slot_name: str | None, reason: str, deadline_seconds: int | None) -> Shown:
    """Asked again, it has the new reason and deadline, and its users are told again."""
    node, slot = _target(tx, caller, name, slot_name)
    deadline = None if deadline_seconds is None else tx.now + timedelta(seconds=deadline_seconds)
    target = slot.id if slot else node.id
    told = draining.start(
        tx, Drain(target, node.id, slot.id if slot else None, reason, caller.user_id, tx.now, deadline)
    )
    said = {"reason": reason, "deadline": deadline.isoformat() if deadline else None}
    _record(tx, "drain", node, slot, **said, machines=[item.id for item in told])
    return show_node(tx, caller, node.id)


def undrain(tx: Tx, caller: Caller, name: str, slot_name: str | None) -> Shown:
    """Asking twice is not an error."""
    node, slot = _target(tx, caller, name, slot_name)
    was = drains.lift(tx, node.id, slot.id if slot else node.id)
    _record(tx, "undrain", node, slot, was_drained=was)
    return show_node(tx, caller, node.id)


def quarantine(tx: Tx, caller: Caller, name: str, slot_name: str, reason: str) -> Shown:
    """Whoever has it keeps it; nobody else gets it before an operator returns it."""
    node, slot = _target(tx, caller, name, slot_name)
    assert slot is not None
    if slot.state == "quarantined":
        slots.set_reason(tx, slot, reason)
    elif SLOT.next(slot.state, "quarantine") is None:
        raise conflict("not_in_this_state", f"The slot {slot.name} is {slot.state}.", "Nobody gets it as it is.")
    else:
        slots.move(tx, slot, "quarantine", reason)
    _record(tx, "quarantine", node, slot, reason=reason)
    return show_node(tx, caller, node.id)


def set_pool(tx: Tx, caller: Caller, name: str, org_name: str | None) -> Shown:
    """A node serves one tenant only, or everybody. Refused while a machine of somebody else is on it (I21)."""
    node, _ = _target(tx, caller, name, None)
    org = identity.org(tx, org_name) if org_name else None
    if org_name and org is None:
        raise not_found("organisation", org_name)
    capacity.lock(tx, [node.id])  # no launch comes in between
    others = allocations.tenants_on(tx, node.id) - ({org.id} if org else set())
    if org and others:
        raise conflict(
            "node_in_use",
            f"{len(others)} other organisations have machines on {node.name}.",
            f"Drain it first, and wait until they are gone: `gpuaas node drain {node.name}`.",
        )
    if org and (unknown := nodes.strangers(tx, node.id)):
        raise conflict(
            "node_in_use",
            f"There are machines on {node.name} that this control plane does not know: {', '.join(unknown)}.",
            "Nobody knows whose they are. Look at them on the node first, and take them down there.",
        )
    nodes.set_org(tx, node.id, org.id if org else None)
    _record(tx, "pool", node, None, org=org.id if org else None)
    return show_node(tx, caller, node.id)


def _target(tx: Tx, caller: Caller, name: str, slot_name: str | None) -> tuple[Node, Slot | None]:
    access.on_platform(tx, caller, "node.write")
    node = nodes.node(tx, name)
    if node is None or node.state == "removed":
        raise not_found("node", name)
    if slot_name is None:
        return node, None
    found = [slot for slot in slots.slots(tx, node.id) if slot_name in (slot.id, slot.name)]
    if not found:
        raise not_found("slot", f"{name}/{slot_name}")
    return node, found[0]


def _record(tx: Tx, verb: str, node: Node, slot: Slot | None, **data: object) -> None:
    if slot is None:
        record(tx, f"node.{verb}", "node", node.id, **data)
    else:
        record(tx, f"slot.{verb}", "slot", slot.id, node=node.id, **data)
