"""The line of launches that wait, and the nodes that are held for the first of them."""

from collections.abc import Sequence

from gpuaas.control.store import capacity
from gpuaas.control.store.rows import jsonb, made, names
from gpuaas.control.store.transaction import Tx
from gpuaas.model.placement import Reason
from gpuaas.model.queue import RECENT, Ticket

_INSERT = f"""
    INSERT INTO queue ({names(Ticket)}) VALUES (%(group_id)s, %(org_id)s, %(project_id)s, %(offer_id)s, %(gpu_model)s,
        %(gpus)s, %(priority)s, %(reasons)s, %(created_at)s, %(expires_at)s, %(preemptible)s)
"""
_ALL = f"SELECT {names(Ticket)} FROM queue ORDER BY created_at, group_id"
# Of every project its first ones, as many of each as there is time for: a long line of one starves nobody else's.
_FIRST = f"""
    SELECT {names(Ticket)} FROM (
        SELECT *, row_number() OVER (PARTITION BY project_id ORDER BY priority DESC, created_at, group_id) AS place
        FROM queue
    ) AS waiting
    WHERE place <= greatest(1, %(most)s / (SELECT count(DISTINCT project_id) FROM queue))
    ORDER BY created_at, group_id
"""
_EXPIRED = f"SELECT {names(Ticket)} FROM queue WHERE expires_at <= %(now)s ORDER BY group_id"
_USED = """
    SELECT project_id, sum(cardinality(gpus) * extract(epoch FROM
        coalesce(ended_at, greatest(started_at, %(now)s)) - greatest(started_at, %(since)s)))
    FROM usage WHERE project_id = ANY(%(projects)s::text[]) AND started_at < %(now)s
        AND (ended_at IS NULL OR ended_at > %(since)s)
    GROUP BY project_id
"""
_REASONS = "UPDATE queue SET reasons = %(reasons)s WHERE group_id = %(group_id)s AND reasons <> %(reasons)s"
_HOLD = """
    INSERT INTO holds (node_id, group_id) SELECT id, %(group_id)s FROM unnest(%(nodes)s::text[]) AS id
    ON CONFLICT (node_id) DO NOTHING
"""
_KEPT_FOR_OTHERS = """
    SELECT DISTINCT group_id FROM holds JOIN queue USING (group_id)
    WHERE gpu_model = %(gpu_model)s AND group_id <> %(id)s
        AND NOT EXISTS (SELECT FROM preemptions p WHERE p.wanted_by = group_id) ORDER BY group_id
"""


def insert(tx: Tx, ticket: Ticket) -> None:
    tx.run(_INSERT, {**ticket.__dict__, "reasons": jsonb(ticket.reasons)})
    tx.wake("placement")


def remove(tx: Tx, group_id: str) -> None:
    """It has its place, or nobody waits for it any more."""
    let_go(tx, group_id)
    tx.run("DELETE FROM queue WHERE group_id = %(id)s", {"id": group_id})


def tickets(tx: Tx, most: int | None = None) -> list[Ticket]:
    """All, or about `most` of them: as many of every project."""
    return [made(Ticket, row) for row in (tx.run(_ALL) if most is None else tx.run(_FIRST, {"most": most}))]


def waiting(tx: Tx, project_id: str) -> int:
    """How many launches of a project are in line."""
    ((many,),) = tx.run("SELECT count(*) FROM queue WHERE project_id = %(id)s", {"id": project_id})
    return int(many)


def lock(tx: Tx, group_id: str) -> bool:
    """Whether it still waits; if so, nobody decides anything about it until we are done."""
    return tx.run("SELECT FROM queue WHERE group_id = %(id)s FOR NO KEY UPDATE", {"id": group_id}).rowcount == 1


def expired(tx: Tx) -> list[Ticket]:
    return [made(Ticket, row) for row in tx.run(_EXPIRED, {"now": tx.now})]


def used_lately(tx: Tx, project_ids: set[str]) -> dict[str, float]:
    """GPU seconds of each project, of what runs and what ran."""
    values = {"projects": sorted(project_ids), "now": tx.now, "since": tx.now - RECENT}
    return {row[0]: float(row[1]) for row in tx.run(_USED, values)}


def tell_why(tx: Tx, group_id: str, reasons: Sequence[Reason]) -> None:
    said = [{"code": r.code, "message": r.message, "count": r.count, "nodes": list(r.nodes)} for r in reasons]
    tx.run(_REASONS, {"group_id": group_id, "reasons": jsonb(said)})


def held(tx: Tx, group_id: str) -> list[str]:
    found = tx.run("SELECT node_id FROM holds WHERE group_id = %(id)s ORDER BY node_id", {"id": group_id})
    return [row[0] for row in found]


def hold(tx: Tx, group_id: str, node_ids: Sequence[str]) -> None:
    """These nodes and no others. What somebody else holds stays theirs."""
    if held(tx, group_id) == sorted(node_ids):
        return
    let_go(tx, group_id)
    capacity.lock(tx, sorted(node_ids))
    tx.run(_HOLD, {"group_id": group_id, "nodes": sorted(node_ids)})
    for node_id in node_ids:
        capacity.changed(tx, node_id)


def let_others_go(tx: Tx, ticket: Ticket) -> bool:
    """It is first for this GPU model now: what was kept for others in this line no longer is, unless somebody gives way
    to them. False: nothing was."""
    found = [row[0] for row in tx.run(_KEPT_FOR_OTHERS, {"id": ticket.group_id, "gpu_model": ticket.gpu_model})]
    for group_id in found:
        let_go(tx, group_id)
    return bool(found)


def let_go(tx: Tx, group_id: str) -> None:
    node_ids = held(tx, group_id)
    if node_ids:
        capacity.lock(tx, node_ids)
        tx.run("DELETE FROM holds WHERE group_id = %(id)s", {"id": group_id})
        tx.wake("placement")
    for node_id in node_ids:
        capacity.changed(tx, node_id)
