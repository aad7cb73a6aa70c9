"""Free slots, counted for each node and GPU model: how a launch finds its node without looking at all of them.

A slot that is booked for later is not counted: who could use it until then finds it by looking at everything.

The counts are never the truth, and always equal to it: whoever changes a slot, a claim or what a node is open for says
`changed`, and the node is recounted once, last in that transaction, under its row lock.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from gpuaas.control.store.noted import noted, noting
from gpuaas.control.store.transaction import Tx
from gpuaas.model.placement import NodeView, SlotView, Wanted, most_linked, most_together

Near = Literal["linked", "numa", "anywhere"]  # where enough GPUs must be: in one link group, in one NUMA domain

# The order of placement/scores.py, by index: own nodes first, then everybody's; the fullest that fits; of those the
# one with the fewest neighbours to part. The chosen node is locked; those that somebody works on are passed over. The
# counts may be those of a moment ago, so it must be looked at again. A second CTE runs only if the first finds nothing.
_FITS = """
    SELECT n.id, n.name, n.org_id, n.state, (n.inventory->>'ready')::boolean AS ready, n.inventory->>'reason' AS reason
    FROM capacity c JOIN nodes n ON n.id = c.node_id
    WHERE c.open AND c.free_slots > 0 AND c.gpu_model = %(gpu_model)s AND c.pool = {pool}
        AND c.free_gpus >= %(gpu_count)s AND c.linked >= %(linked)s AND c.together >= %(together)s
        AND (c.free_slots = c.slots OR NOT %(whole)s)
        AND c.node_id <> ALL(%(tried)s::text[]) {more}
    ORDER BY c.free_gpus, c.linked, c.together, c.node_id LIMIT 1 {lock}
"""


LOCKED = noted("locked")  # the node, for what is asked together with its lock


def _best(lock: str) -> str:
    mine = _FITS.format(pool="%(org_id)s", more="", lock=lock)
    shared = _FITS.format(pool="''", more="AND NOT EXISTS (SELECT FROM mine)", lock=lock)
    return f"WITH mine AS MATERIALIZED ({mine}), shared AS MATERIALIZED ({shared}) TABLE mine UNION ALL TABLE shared"


_LOCK_BEST = f"SELECT *, {noting('locked', 'id')} FROM ({_best('FOR NO KEY UPDATE OF n SKIP LOCKED')}) AS best"
_BEST = _best("")
_LOCK = "SELECT id FROM nodes WHERE id = ANY(%(ids)s::text[]) ORDER BY id FOR NO KEY UPDATE"
_LOCK_USABLE = """
    SELECT n.id FROM nodes n WHERE n.id IN (
        SELECT node_id FROM capacity
        WHERE gpu_model = %(gpu_model)s AND pool IN (%(org_id)s, '')
            AND (free_slots > 0 OR EXISTS (SELECT FROM bookings b WHERE b.node_id = capacity.node_id))
            AND (open OR node_id IN (SELECT node_id FROM holds WHERE group_id = %(group_id)s))
    ) ORDER BY n.id FOR NO KEY UPDATE
"""
_TAKEN = """
    UPDATE capacity SET free_slots = free_slots - %(slots)s, free_gpus = free_gpus - %(gpus)s, together = %(together)s,
        linked = %(linked)s
    WHERE node_id = %(node_id)s AND gpu_model = %(gpu_model)s
"""
_CLOSE_ALL = "UPDATE capacity SET open = false"
# The live claim on a slot s. That of a scrub (operations/scrub.py) has no allocation.
CLAIM = """
    SELECT coalesce(a.realisation = 'baremetal' OR o.isolation = 'dedicated_node', false) AS alone
    FROM claims c LEFT JOIN allocations a ON a.id = c.allocation_id LEFT JOIN offers o ON o.id = a.offer_id
    WHERE c.slot_id = s.id AND c.state <> 'freed'
"""
# The same for the slots of one node. LIMIT keeps the planner, whatever it believes of how many claims there are, from
# reading those of all nodes for those of one: 6 ms of 10,000 nodes, where it takes 0.1.
CLAIM_BY_INDEX = f"{CLAIM} LIMIT 1"
_RECOUNT = f"""
    WITH there AS (
        SELECT s.gpu_model, s.numa, coalesce(s.card, 'link group ' || s.link_group, s.id) AS link,
            (s.state = 'approved' AND c.alone IS NULL AND d.slot_id IS NULL AND b.slot_id IS NULL)::int AS slots,
            CASE WHEN s.state = 'approved' AND c.alone IS NULL AND d.slot_id IS NULL AND b.slot_id IS NULL
                THEN cardinality(s.gpus) ELSE 0 END AS gpus,
            coalesce(c.alone, false) AS alone
        FROM slots s LEFT JOIN LATERAL ({CLAIM_BY_INDEX}) c ON true
            LEFT JOIN drains d ON d.slot_id = s.id
            LEFT JOIN (SELECT DISTINCT slot_id FROM bookings WHERE node_id = %(node_id)s) b ON b.slot_id = s.id
        WHERE s.node_id = %(node_id)s AND s.state <> 'retired'
    ), free AS (
        SELECT gpu_model, sum(slots) AS slots, sum(gpus) AS gpus FROM there GROUP BY gpu_model
    ), gone AS (
        DELETE FROM capacity WHERE node_id = %(node_id)s AND gpu_model NOT IN (SELECT gpu_model FROM free)
    )
    INSERT INTO capacity (node_id, gpu_model, pool, open, slots, free_slots, free_gpus, together, linked)
    SELECT n.id, f.gpu_model, coalesce(n.org_id, ''),
        n.state = 'ready' AND coalesce((n.inventory->>'ready')::boolean, false)
            AND NOT EXISTS (SELECT FROM drains d WHERE d.target_id = n.id)
            AND NOT EXISTS (SELECT FROM holds h WHERE h.node_id = n.id)
            AND NOT EXISTS (SELECT FROM there t WHERE t.alone),
        (SELECT count(*) FROM there), f.slots, f.gpus,
        (SELECT sum(t.gpus) FROM there t WHERE t.gpu_model = f.gpu_model GROUP BY t.numa ORDER BY 1 DESC LIMIT 1),
        (SELECT sum(t.gpus) FROM there t WHERE t.gpu_model = f.gpu_model GROUP BY t.link ORDER BY 1 DESC LIMIT 1)
    FROM nodes n, free f WHERE n.id = %(node_id)s
    ON CONFLICT (node_id, gpu_model) DO UPDATE SET pool = excluded.pool, open = excluded.open, slots = excluded.slots,
        free_slots = excluded.free_slots, free_gpus = excluded.free_gpus, together = excluded.together,
        linked = excluded.linked
"""


def changed(tx: Tx, node_id: str) -> None:
    tx.last(f"capacity:{node_id}", partial(_recount, node_id=node_id))


def _recount(tx: Tx, node_id: str) -> None:
    tx.later(_LOCK, {"ids": [node_id]})
    tx.later(_RECOUNT, {"node_id": node_id})


def taken(tx: Tx, node: NodeView, slots: Sequence[SlotView]) -> None:
    """The same for a claim, whose node is locked and was just looked at: counted in memory, it is one statement."""
    gone = {slot.id for slot in slots}
    model = slots[0].gpu_model
    counted = [slot for slot in slots if not slot.kept]  # what is kept for a reservation is not counted as free
    left = [slot for slot in node.slots if slot.free and slot.gpu_model == model and slot.id not in gone]
    values = {
        "node_id": node.id,
        "gpu_model": model,
        "slots": len(counted),
        "gpus": sum(slot.gpu_count for slot in counted),
        "together": most_together(left),
        "linked": most_linked(left),
    }
    tx.later(_TAKEN, values)


def close_all(tx: Tx) -> None:
    """No node may be used before it has said what it holds."""
    tx.run(_CLOSE_ALL)


def locking_best(wanted: Wanted, near: Near, tried: Sequence[str]) -> tuple[str, dict[str, object]]:
    """The best node that nobody works on right now. What is asked with it sees it as LOCKED, as it is then."""
    return _LOCK_BEST, _values(wanted, near, tried)


def best(tx: Tx, wanted: Wanted, near: Near, tried: Sequence[str]) -> str | None:
    """The best node, whoever works on it. Lock it, and look again."""
    row = tx.run(_BEST, _values(wanted, near, tried)).fetchone()
    return None if row is None else str(row[0])


def lock(tx: Tx, node_ids: Sequence[str]) -> None:
    """In one order everywhere, so that two who want several never wait in a circle."""
    tx.run(_LOCK, {"ids": list(node_ids)})


def lock_usable(tx: Tx, wanted: Wanted) -> list[str]:
    """Every node on which any of it could be placed, also those that are kept for it. Nothing else is locked."""
    values = {"gpu_model": wanted.gpu_model, "org_id": wanted.org_id, "group_id": wanted.group_id}
    return [row[0] for row in tx.run(_LOCK_USABLE, values)]


def _values(wanted: Wanted, near: Near, tried: Sequence[str]) -> dict[str, object]:
    return {
        "org_id": wanted.org_id,
        "gpu_model": wanted.gpu_model,
        "gpu_count": wanted.gpu_count,
        "linked": wanted.gpu_count if near == "linked" else 0,
        "together": wanted.gpu_count if near == "numa" else 0,
        "whole": wanted.needs_whole_node,
        "tried": [*tried, *wanted.unfit],
    }
