"""What a node really holds, against what the store thinks: after a restored backup, a lost store, a foreign node.

Nothing is ever destroyed here. What the store does not know is kept, its slots are set aside, and a person is told.
"""

import logging
from typing import Any

from gpuaas.control.operations import release, scrub
from gpuaas.control.store import allocations, claims, identity, nodes, operations, slots, specs, strays
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lifecycle import COSTING
from gpuaas.wire.node import Condition, Holding

log = logging.getLogger(__name__)


def reconcile(tx: Tx, node_id: str, holding: Holding) -> None:
    if scrub.is_scrub(holding.id) and claims.slot_ids(tx, holding.id):
        return  # asked for here, too: the node's report ends it
    allocation = allocations.by_id(tx, holding.id, lock=True)
    if allocation is None or allocation.node_id != node_id:
        if not holding.gone:
            set_aside(tx, node_id, holding, f"{_held_by(holding.id)}, which this control plane does not know")
            if scrub.is_scrub(holding.id):
                return  # no machine that anybody could remove: it ends by itself
            strays.seen(tx, node_id, holding)
            if holding.seat is not None:
                nodes.add_stranger(tx, node_id, holding.seat, holding.id)
            return
        nodes.forget_stranger(tx, node_id, holding.id)
        strays.forget(tx, node_id, holding.id)
        if holding.dirty:
            set_aside(tx, node_id, holding, f"not scrubbed after {holding.id}")
    elif holding.gone:
        if allocation.reaped_at is None:
            _already_gone(tx, allocation, holding)
    elif holding.generation >= allocation.generation and allocation.reaped_at is None:
        _catch_up(tx, allocation, holding)


def set_aside(tx: Tx, node_id: str, holding: Holding, reason: str) -> None:
    """The slots of what this store does not know must not be given to anybody until a person has looked."""
    for slot in slots.slots(tx, node_id):
        named = slot.id in holding.slots or any(gpu in holding.gpus for gpu in slot.gpus)
        concerned = named if not holding.gone else any(gpu in holding.dirty for gpu in slot.gpus)
        if concerned and slot.state == "approved" and slot.reason != reason:
            slots.move(tx, slot, "quarantine", reason)
            _tell_operators(tx, node_id, "slot.quarantined", slot=slot.id, reason=reason)
    log.warning("unknown object on a node", extra={"fields": {"node_id": node_id, "id": holding.id}})


def removed(tx: Tx, node_id: str, condition: Condition) -> None:
    """The node has carried out the tombstone that an operator asked for. The slots wait for a look all the same."""
    stray = strays.stray(tx, node_id, condition.id)
    if stray is None or stray.removed_at is None or condition.state != "gone":
        return
    nodes.forget_stranger(tx, node_id, stray.id)
    strays.forget(tx, node_id, stray.id)
    clean = {each.gpu for each in condition.scrubs if each.clean}
    for slot in slots.by_ids(tx, list(stray.slots)):
        if slot.node_id == node_id and slot.state == "quarantined" and slot.reason.startswith(_held_by(stray.id)):
            well = clean.issuperset(slot.gpus)
            slots.set_reason(tx, slot, f"{stray.id} was removed; {'scrubbed' if well else 'not scrubbed'}")
    _tell_operators(tx, node_id, "stray.removed", stray=stray.id, not_scrubbed=_dirty(condition))


def _dirty(condition: Condition) -> list[str]:
    return [each.gpu for each in condition.scrubs if not each.clean]


def _held_by(id: str) -> str:
    return f"held by {id}"


def _already_gone(tx: Tx, allocation: Allocation, holding: Holding) -> None:
    """The node has carried out a tombstone that this (older) database does not remember.

    When it ended, and what it was until then (a stopped one costs nothing), nobody knows any more. It is charged for
    the time in which this database knew it, and not for any time after that.
    """
    assert allocation.node_id is not None
    node = nodes.node(tx, allocation.node_id)
    known_until = node.last_seen_at if node and allocation.state in COSTING else None
    _tell_operators(tx, allocation.node_id, "allocation.drift", allocation=allocation.id, found="already released")
    if allocation.state == "unreachable":
        allocation = allocations.move(tx, allocation, "found")
    if allocation.state != "releasing":
        allocation = release.bury(tx, allocation, "release", at=known_until)
    evidence = "could not be scrubbed, before this database was restored"
    release.reap(tx, allocation, [{"gpu": gpu, "clean": False, "evidence": evidence} for gpu in holding.dirty])


def launch_anew(tx: Tx, allocation: Allocation) -> None:
    """The node deleted it in a future that this database has forgotten, and deleted is deleted.

    It was still queued when the node said what it holds, so nobody noticed. Nothing of it was ever seen here: another
    incarnation loses nothing, and the submit is kept.
    """
    assert allocation.node_id is not None
    body, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    _tell_operators(tx, allocation.node_id, "allocation.drift", allocation=allocation.id, found="deleted before")
    new = allocations.set_(tx, allocation, incarnation=allocation.incarnation + 1, generation=allocation.generation + 1)
    specs.write(tx, allocation.node_id, new.id, new.incarnation, new.generation, body)


def _catch_up(tx: Tx, allocation: Allocation, holding: Holding) -> None:
    """The node has seen newer generations than this database remembers: number ours after them."""
    assert allocation.node_id is not None
    _tell_operators(tx, allocation.node_id, "allocation.drift", allocation=allocation.id, found=holding.generation)
    body, _ = specs.bodies(tx, allocation.node_id, allocation.id)
    restarts = max(allocation.restarts, holding.restarts)
    newer = allocations.set_(tx, allocation, generation=holding.generation + 1, restarts=restarts)
    if body is not None:
        body = {**body, "restarts": max(body["restarts"], holding.restarts)}
    specs.write(tx, allocation.node_id, newer.id, newer.incarnation, newer.generation, body)
    for operation in operations.running(tx, newer.id):
        operations.set_phases(tx, operation, operation.phases, generation=newer.generation)


def _tell_operators(tx: Tx, node_id: str, action: str, **data: Any) -> None:
    tx.audit(action, org_id=identity.platform_org_id(tx), kind="node", id=node_id, **data)
