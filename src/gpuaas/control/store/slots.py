"""Slots, the GPUs in them, and the snapshot that placement plans over."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, exists, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import allocations, bookings, capacity
from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.model.lifecycle import SLOT
from gpuaas.model.node import Hold, LastScrub, Slot
from gpuaas.model.placement import NodeView, SlotView, Wanted


def insert_slot(tx: Tx, node_id: str, state: str, **values: Any) -> str | None:
    """None when one of its GPUs is in another slot already: itself, the GPU that it is a part of, or a part of it."""
    slot_id = tx.ids.new("sl")
    tx.conn.execute(insert(t.slots).values(id=slot_id, node_id=node_id, state=state, created_at=tx.now, **values))
    card = values.get("card")
    for gpu in sorted(values["gpus"]):
        if not _cut_like_this(tx, card or gpu, cut=card is not None):
            return None
        taken = {"gpu": gpu, "slot_id": slot_id, "card": card or gpu, "cut": card is not None}
        made = tx.conn.execute(
            upsert(t.slot_gpus).values(taken).on_conflict_do_nothing().returning(t.slot_gpus.c.gpu)
        ).first()
        if made is None:
            return None
    capacity.changed(tx, node_id)
    return slot_id


def _cut_like_this(tx: Tx, card: str, cut: bool) -> bool:
    """Whether this GPU is cut into instances, or whole, as is said; it may change while nothing of it is in a slot."""
    statement = upsert(t.cards).values(gpu=card, cut=cut)
    in_a_slot = exists().where(t.slot_gpus.c.card == t.cards.c.gpu)
    change = statement.on_conflict_do_update(index_elements=["gpu"], set_={"cut": cut}, where=~in_a_slot)
    tx.conn.execute(change)
    return tx.conn.execute(select(t.cards.c.cut).where(t.cards.c.gpu == card)).scalar_one() is cut


def slots(tx: Tx, node_id: str) -> list[Slot]:
    statement = select(*columns(t.slots, Slot)).where(t.slots.c.node_id == node_id, t.slots.c.state != "retired")
    return many(tx.conn, statement.order_by(t.slots.c.name), Slot)


def by_ids(tx: Tx, slot_ids: list[str]) -> list[Slot]:
    statement = select(*columns(t.slots, Slot)).where(t.slots.c.id.in_(slot_ids))
    return many(tx.conn, statement.order_by(t.slots.c.id), Slot)


def holders(tx: Tx, node_id: str) -> dict[str, Hold]:
    """Which allocation holds which slot."""
    statement = (
        select(t.claims.c.slot_id, t.claims.c.allocation_id, t.claims.c.state)
        .join(t.slots, t.slots.c.id == t.claims.c.slot_id)
        .where(t.slots.c.node_id == node_id, t.claims.c.state != "freed")
    )
    return {row.slot_id: Hold(row.allocation_id, row.state) for row in tx.conn.execute(statement)}


_SCRUBS = """
    SELECT s.id, c.allocation_id, c.freed_at, c.evidence
    FROM slots s, LATERAL (
        SELECT allocation_id, freed_at, evidence FROM claims
        WHERE slot_id = s.id AND state = 'freed' AND jsonb_array_length(evidence) > 0
        ORDER BY freed_at DESC LIMIT 1
    ) c
    WHERE s.node_id = %(node_id)s AND s.state <> 'retired'
"""


def scrubs(tx: Tx, node_id: str) -> dict[str, LastScrub]:
    """By slot, the last one that its node gave evidence of."""
    return {slot_id: LastScrub(*rest) for slot_id, *rest in tx.run(_SCRUBS, {"node_id": node_id})}


_UNCLEAN = """
    SELECT gpu FROM unnest(%(gpus)s::text[]) AS wanted (gpu), LATERAL (
        SELECT (said->>'clean')::boolean AS clean
        FROM slots s JOIN claims c ON c.slot_id = s.id, jsonb_array_elements(c.evidence) AS said
        WHERE s.node_id = %(node_id)s AND s.state = 'retired' AND gpu = ANY(s.gpus)
            AND c.state = 'freed' AND said->>'gpu' = gpu
        ORDER BY c.freed_at DESC LIMIT 1
    ) last WHERE NOT last.clean
"""


def unclean(tx: Tx, node_id: str, gpus: Sequence[str]) -> list[str]:
    """Those of these whose last scrub on this node failed, in the slot that they were in then."""
    return [row[0] for row in tx.run(_UNCLEAN, {"node_id": node_id, "gpus": list(gpus)})]


def set_aside(tx: Tx, allocation_ids: list[str]) -> dict[str, tuple[str, ...]]:
    """Why slots of these allocations are in quarantine, where some are."""
    statement = (
        select(t.claims.c.allocation_id, t.slots.c.reason)
        .join(t.slots, t.slots.c.id == t.claims.c.slot_id)
        .where(t.claims.c.allocation_id.in_(allocation_ids), t.claims.c.state != "freed")
        .where(t.slots.c.state == "quarantined")
        .order_by(t.slots.c.name)
    )
    found: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for row in tx.conn.execute(statement):
        found[row.allocation_id] += (row.reason,)
    return dict(found)


def move(tx: Tx, slot: Slot, event: str, reason: str = "") -> None:
    """The only writer of a slot's state."""
    becomes = SLOT.next(slot.state, event)
    if becomes is None:
        raise Stale(f"slot {slot.id} is {slot.state}: {event} means nothing there")
    statement = (
        update(t.slots)
        .where(t.slots.c.id == slot.id, t.slots.c.state == slot.state)
        .values(state=becomes, reason=reason)
    )
    if tx.conn.execute(statement).rowcount != 1:
        raise Stale(f"slot {slot.id} moved")
    if becomes == "retired":
        tx.conn.execute(delete(t.slot_gpus).where(t.slot_gpus.c.slot_id == slot.id))
    capacity.changed(tx, slot.node_id)
    tx.wake("placement")


def set_reason(tx: Tx, slot: Slot, reason: str) -> None:
    tx.conn.execute(update(t.slots).where(t.slots.c.id == slot.id, t.slots.c.state == slot.state).values(reason=reason))


def set_place(tx: Tx, slot: Slot, **where: Any) -> None:
    """Where its GPUs are. Not a part of what was approved: it decides only what is chosen together."""
    tx.conn.execute(update(t.slots).where(t.slots.c.id == slot.id).values(where))
    card = where.get("card")
    if card and _cut_like_this(tx, card, cut=True):  # a slot from before its node said of which GPU it is a part
        unknown = update(t.slot_gpus).where(t.slot_gpus.c.slot_id == slot.id, t.slot_gpus.c.card.is_(None))
        tx.conn.execute(unknown.values(card=card, cut=True))
    capacity.changed(tx, slot.node_id)


def snapshot(tx: Tx, node_ids: Sequence[str] | None = None) -> list[NodeView]:
    """Live nodes with their slots, as placement sees them: all, or these."""
    inventory = t.nodes.c.inventory
    statement = select(
        t.nodes.c.id,
        t.nodes.c.name,
        t.nodes.c.org_id,
        t.nodes.c.state,
        inventory["ready"].as_boolean().label("ready"),
        inventory["reason"].as_string().label("reason"),
        exists().where(t.drains.c.target_id == t.nodes.c.id).label("drained"),
        select(t.holds.c.group_id).where(t.holds.c.node_id == t.nodes.c.id).scalar_subquery().label("held"),
    ).where(t.nodes.c.state != "removed")
    if node_ids is not None:
        statement = statement.where(t.nodes.c.id.in_(node_ids))
    found = tx.conn.execute(statement.order_by(t.nodes.c.id)).all()
    views = on_nodes(tx, None if node_ids is None else list(node_ids))
    return [
        NodeView(
            n.id,
            n.name,
            n.org_id,
            n.state,
            bool(n.ready),
            n.reason or "",
            tuple(views.get(n.id, ())),
            n.drained,
            n.held,
        )
        for n in found
    ]


_VIEWS = """
    SELECT s.id, s.node_id, s.gpu_model, cardinality(s.gpus), s.gpus, s.cpus, s.memory_mib, s.numa, s.state,
        c.alone IS NOT NULL, {drained}, s.link_group, s.card, coalesce(c.alone, false), {booked} {more}
    FROM slots s LEFT JOIN LATERAL ({claim}) c ON true
    WHERE s.state <> 'retired' {which} ORDER BY s.id
"""
_ALL_VIEWS, _SOME_VIEWS = (
    _VIEWS.format(
        drained="EXISTS (SELECT FROM drains d WHERE d.slot_id = s.id)",
        booked="EXISTS (SELECT FROM bookings b WHERE b.slot_id = s.id)",
        claim=capacity.CLAIM,
        more="",
        which=which,
    )
    for which in ("", "AND s.node_id = ANY(%(ids)s::text[])")
)
# Of one node everything beside its slots is looked for once.
_LOCKED_VIEWS = _VIEWS.format(
    drained=f"s.id = ANY(ARRAY(SELECT target_id FROM drains WHERE node_id = {capacity.LOCKED}))",
    booked=f"s.id = ANY(ARRAY(SELECT slot_id FROM bookings WHERE node_id = {capacity.LOCKED}))",
    claim=capacity.CLAIM_BY_INDEX,
    more=f""", EXISTS (SELECT FROM drains WHERE target_id = {capacity.LOCKED}),
        (SELECT group_id FROM holds WHERE node_id = {capacity.LOCKED}),
        {allocations.TAKEN_SEATS.format(node_id=capacity.LOCKED)}""",
    which=f"AND s.node_id = {capacity.LOCKED}",
)


def lock_best(tx: Tx, wanted: Wanted, near: capacity.Near, tried: Sequence[str]) -> NodeView | None:
    """The best node that nobody works on right now, locked, with its slots as they are then: whoever had the lock in
    the moment between the look at the counts and the lock may have drained it, or keeps it for somebody."""
    nodes, views = tx.together(capacity.locking_best(wanted, near, tried), (_LOCKED_VIEWS, {}))
    if not nodes:
        return None
    id, name, org_id, state, ready, reason, _ = nodes[0]
    node = NodeView(id, name, org_id, state, bool(ready), reason or "", ())
    if not views:
        return node
    *_, drained, held, taken = views[0]
    slots = _kept(tx, [_view(*row[:-4]) for row in views], [row[0] for row in views if row[-4]])
    return replace(node, slots=tuple(slots), drained=drained, held=held, seat=allocations.lowest_free(taken))


def _view(id: str, node_id: str, model: str, count: int, gpus: list[str], *rest: Any) -> SlotView:
    return SlotView(id, node_id, model, count, tuple(gpus), *rest)


def _kept(tx: Tx, views: list[SlotView], booked: list[str]) -> list[SlotView]:
    """With the times for which they are booked: seldom, and so asked for apart."""
    if not booked:
        return views
    kept = bookings.kept(tx, booked)
    return [replace(slot, kept=kept.get(slot.id, ())) for slot in views]


def on_nodes(tx: Tx, node_ids: list[str] | None) -> dict[str, list[SlotView]]:
    """The slots of these nodes, or of all, by node."""
    rows = tx.run(_ALL_VIEWS) if node_ids is None else tx.run(_SOME_VIEWS, {"ids": node_ids})
    found: dict[str, list[SlotView]] = defaultdict(list)
    booked = []
    for *row, is_booked in rows:
        slot = _view(*row)
        found[slot.node_id].append(slot)
        booked += [slot.id] if is_booked else []
    if not booked:
        return found
    every = {slot.id: slot for slot in _kept(tx, [slot for views in found.values() for slot in views], booked)}
    return {node_id: [every[slot.id] for slot in views] for node_id, views in found.items()}
