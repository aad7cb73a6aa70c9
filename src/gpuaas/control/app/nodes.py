"""The fleet: join tokens, joining, approving slots."""

from datetime import datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gpuaas.control.app import access
from gpuaas.control.operations import scrub
from gpuaas.control.store import drains, identity, nodes, slots
from gpuaas.control.store.drains import Drain
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, Taken, conflict, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import SLOT
from gpuaas.model.node import Hold, LastScrub, Node, Slot

Shown = tuple[Node, list[Slot], dict[str, Hold], list[Drain], dict[str, LastScrub]]


def create_join_token(
    tx: Tx, caller: Caller, org_name: str | None, approve_slots: bool, lifetime_seconds: int
) -> tuple[str, str, datetime]:
    access.on_platform(tx, caller, "node.write")
    org = identity.org(tx, org_name) if org_name else None
    if org_name and org is None:
        raise not_found("organisation", org_name)
    made = nodes.insert_join_token(
        tx, caller.user_id, org.id if org else None, approve_slots, timedelta(seconds=lifetime_seconds)
    )
    record(tx, "node.join_token", "join_token", made[0], org=org.id if org else None, approve_slots=approve_slots)
    return made


def join(tx: Tx, token: str, name: str, public_key: str, signature: str) -> Node:
    """A node brings a one-time token and proves that it holds its key. Asked again with both, it gets the same id."""
    tx.authorized.add("node.join")
    if not signed_by(public_key, b"gpuaas-node-join:" + token.encode(), signature):
        raise Problem("bad_signature", 401, "The node did not prove that it holds its key.", "Join again.")
    known = nodes.by_public_key(tx, public_key)
    if known is not None and known.name == name:
        return known
    used = nodes.use_join_token(tx, token)
    if used is None:
        raise Problem(
            "bad_join_token",
            401,
            "The join token is unknown, used or expired.",
            "Ask an operator for a new one: `gpuaas node join-token`.",
        )
    org_id, approve_slots, created_by = used
    try:
        node = nodes.insert_node(tx, name, org_id, public_key, approve_slots)
    except Taken as error:
        raise conflict("name_taken", f"There is a node {name!r} already.", "Choose another name.") from error
    tx.actor = created_by
    record(tx, "node.join", "node", node.id, name=name)
    return node


def signed_by(public_key: str, message: bytes, signature: str) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def list_nodes(tx: Tx, caller: Caller) -> list[Node]:
    access.on_platform(tx, caller, "node.read")
    return nodes.nodes(tx)


def show_node(tx: Tx, caller: Caller, name: str) -> Shown:
    """With its slots, and which allocation holds which."""
    access.on_platform(tx, caller, "node.read")
    node = nodes.node(tx, name)
    if node is None or node.state == "removed":
        raise not_found("node", name)
    return _shown(tx, node)


def approve(tx: Tx, caller: Caller, name: str, wanted: list[str]) -> Shown:
    """Approve the named slots, or every proposed one. Only approved slots are ever given out."""
    access.on_platform(tx, caller, "node.write")
    node = nodes.node(tx, name)
    if node is None or node.state == "removed":
        raise not_found("node", name)
    have = slots.slots(tx, node.id)
    for slot_name in wanted:
        if not any(slot_name in (slot.id, slot.name) for slot in have):
            raise not_found("slot", slot_name)
    chosen = [slot for slot in have if not wanted or slot.id in wanted or slot.name in wanted]
    approved = []
    for slot in chosen:
        trouble = _trouble(node, slot)
        if SLOT.next(slot.state, "approve") and not trouble:
            slots.move(tx, slot, "approve")
            scrub.start_if_unclean(tx, node.id, slot.id)
            approved.append(slot.name)
        elif wanted and trouble:
            raise _unwell(slot, trouble)
        elif wanted and slot.state != "approved":
            raise conflict("not_in_this_state", f"The slot {slot.name} is {slot.state}.", "Return it first.")
    record(tx, "node.approve", "node", node.id, slots=approved)
    return _shown(tx, node)


def return_slot(tx: Tx, caller: Caller, name: str, slot_name: str) -> Shown:
    """An operator looked at a quarantined slot and gives it back to placement, once its node has scrubbed it (I15).

    Whoever has it meanwhile keeps it, and it is scrubbed after them.
    """
    access.on_platform(tx, caller, "node.write")
    node = nodes.node(tx, name, lock=True)
    found = [slot for slot in slots.slots(tx, node.id) if slot_name in (slot.id, slot.name)] if node else []
    if node is None or node.state == "removed" or not found:
        raise not_found("slot", f"{name}/{slot_name}")
    if SLOT.next(found[0].state, "return") is None:
        raise conflict("not_in_this_state", f"The slot {found[0].name} is {found[0].state}, not quarantined.")
    if trouble := _trouble(node, found[0]):
        raise _unwell(found[0], trouble)
    slots.move(tx, found[0], "return")
    scrub.start(tx, found[0], slots.holders(tx, node.id).get(found[0].id))
    record(tx, "slot.return", "slot", found[0].id, node=node.id)
    return _shown(tx, node)


def _shown(tx: Tx, node: Node) -> Shown:
    """With its slots, which allocation holds which, what is drained, and how each was scrubbed last."""
    current = nodes.node(tx, node.id)
    assert current is not None
    drained, scrubs = drains.on_node(tx, node.id), slots.scrubs(tx, node.id)
    return current, slots.slots(tx, node.id), slots.holders(tx, node.id), drained, scrubs


def _trouble(node: Node, slot: Slot) -> str:
    """What the node says right now about the slot's GPUs. It says so again when it reconnects, and would undo us."""
    said = {gpu["uuid"]: gpu.get("trouble", "") for gpu in (node.inventory or {}).get("gpus", [])}
    return "; ".join(said[gpu] for gpu in slot.gpus if said.get(gpu))


def _unwell(slot: Slot, trouble: str) -> Problem:
    return conflict(
        "gpu_trouble",
        f"The node still reports trouble with the slot {slot.name}: {trouble}",
        "Repair or reset the GPU; once the node no longer reports it, the slot can be used.",
    )


def record(tx: Tx, action: str, kind: str, id: str, **data: Any) -> None:
    tx.audit(action, org_id=identity.platform_org_id(tx), kind=kind, id=id, **data)
