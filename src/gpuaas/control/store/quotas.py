"""Quotas, and what counts against them."""

from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx
from gpuaas.model.quota import ALLOCATIONS, GPU_HOURS, GPUS, VOLUMES, Quota, Span
from gpuaas.model.reservation import TAIL, Stay, gone_by

LOCKED = f"""
    SELECT {names(Quota)} FROM quotas WHERE owner_id IN ({{owners}}) ORDER BY owner_id, kind
    FOR NO KEY UPDATE
"""
_LOCKED = LOCKED.format(owners="%(org_id)s, %(project_id)s")
_FIND = f"SELECT {names(Quota)} FROM quotas WHERE owner_id = ANY(%(owners)s::text[])"
_SET = """
    INSERT INTO quotas (owner_id, kind, most, org_id, changed_at)
    VALUES (%(owner_id)s, %(kind)s, %(most)s, %(org_id)s, %(now)s)
    ON CONFLICT (owner_id, kind) DO UPDATE SET most = excluded.most, changed_at = excluded.changed_at
"""
_REMOVE = "DELETE FROM quotas WHERE owner_id = %(owner_id)s AND kind = %(kind)s"
# What is held counts: who has a node alone holds all of its GPUs, whatever was asked for. Of all others it is the same.
_GPUS = """
    CASE o.isolation WHEN 'dedicated_node' THEN (
        SELECT coalesce(sum(cardinality(s.gpus)), 0) FROM claims c JOIN slots s ON s.id = c.slot_id
        WHERE c.allocation_id = a.id AND c.state <> 'freed'
    ) ELSE o.gpu_count END
"""
# What has a place and is not proven to be gone: from the claim to the scrub.
_HELD = """
    SELECT count(*), coalesce(sum({gpus}), 0) FROM allocations a JOIN offers o ON o.id = a.offer_id
    WHERE a.{scope}_id = %(owner_id)s AND a.node_id IS NOT NULL AND a.reaped_at IS NULL
"""
_HOURS = """
    SELECT coalesce(sum(cardinality(gpus) * extract(epoch FROM
        coalesce(ended_at, greatest(started_at, %(now)s)) - greatest(started_at, %(month)s))), 0) / 3600
    FROM usage WHERE {scope}_id = %(owner_id)s AND started_at < %(now)s
        AND (ended_at IS NULL OR ended_at > %(month)s)
"""


_RESERVED = """
    SELECT r.count, greatest(r.count * o.gpu_count, (
        SELECT sum(cardinality(s.gpus)) FROM bookings b JOIN slots s ON s.id = b.slot_id WHERE b.reservation_id = r.id
    )), r.starts_at, r.ends_at FROM reservations r JOIN offers o ON o.id = r.offer_id
    WHERE r.{scope}_id = %(owner_id)s AND r.state = 'booked' AND r.id <> %(besides)s
"""
_STAYS = """
    SELECT '', a.node_id, a.id, {gpus}, a.state, CASE a.state WHEN 'releasing' THEN 'scrubbing' ELSE 'held' END,
        false, a.active_at, NULL, NULL, l.max_seconds, l.ends_at, l.stage, l.stage_at
    FROM allocations a JOIN offers o ON o.id = a.offer_id LEFT JOIN leases l ON l.allocation_id = a.id
    WHERE a.{scope}_id = %(owner_id)s AND a.node_id IS NOT NULL AND a.reaped_at IS NULL
"""


def reserved(tx: Tx, scope: str, owner_id: str, besides: str | None) -> list[Span]:
    """What is booked ahead, other than `besides`."""
    found = tx.run(_RESERVED.format(scope=scope), {"owner_id": owner_id, "besides": besides or ""})
    return [Span(machines, int(gpus), starts_at, ends_at + TAIL) for machines, gpus, starts_at, ends_at in found]


def held(tx: Tx, scope: str, owner_id: str) -> list[Span]:
    """What is there now, and until when at most."""
    found = [made(Stay, row) for row in tx.run(_STAYS.format(scope=scope, gpus=_GPUS), {"owner_id": owner_id})]
    return [Span(1, stay.gpus, None, gone_by(stay, tx.now, None)) for stay in found]


def locked(tx: Tx, org_id: str, project_id: str) -> list[Quota]:
    """Whoever wants more of the same waits until we have, or have not, taken it."""
    return [made(Quota, row) for row in tx.run(_LOCKED, {"org_id": org_id, "project_id": project_id})]


def of(tx: Tx, *owner_ids: str) -> list[Quota]:
    return [made(Quota, row) for row in tx.run(_FIND, {"owners": list(owner_ids)})]


def set_(tx: Tx, owner_id: str, org_id: str, kind: str, most: int | None) -> None:
    """None: no limit any more."""
    if most is None:
        tx.run(_REMOVE, {"owner_id": owner_id, "kind": kind})
    else:
        tx.run(_SET, {"owner_id": owner_id, "org_id": org_id, "kind": kind, "most": most, "now": tx.now})


def used(tx: Tx, scope: str, owner_id: str, kinds: set[str]) -> dict[str, float]:
    """By kind; `scope` is project or org."""
    found: dict[str, float] = {VOLUMES: 0}
    if kinds & {GPUS, ALLOCATIONS}:
        machines, gpus = tx.run(_HELD.format(scope=scope, gpus=_GPUS), {"owner_id": owner_id}).fetchone() or (0, 0)
        found |= {ALLOCATIONS: machines, GPUS: int(gpus)}
    if GPU_HOURS in kinds:
        month = tx.now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        values = {"owner_id": owner_id, "now": tx.now, "month": month}
        (hours,) = tx.run(_HOURS.format(scope=scope), values).fetchone() or (0,)
        found[GPU_HOURS] = float(hours)
    return found
