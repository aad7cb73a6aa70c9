"""The whole fleet at one moment, for monitoring: how many of what, and the newest sample of every machine."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import func, select, true

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns
from gpuaas.control.store.transaction import Tx
from gpuaas.model.lifecycle import ALLOCATION, NODE, SLOT, Lifecycle
from gpuaas.model.sample import GpuUse, Sample


@dataclass(frozen=True)
class Measured:
    name: str
    org: str
    project: str
    node: str
    sample: Sample


TABLES = {NODE.name: t.nodes, SLOT.name: t.slots, ALLOCATION.name: t.allocations}


def by_state(tx: Tx, lifecycle: Lifecycle) -> dict[str, int]:
    """Without those that have ended: they only become more."""
    state = TABLES[lifecycle.name].c.state
    statement = select(state, func.count().label("many")).where(state.not_in(lifecycle.ends)).group_by(state)
    return {row.state: row.many for row in tx.conn.execute(statement)}


USES = ("free", "claimed", "scrubbing", "drained", "away")
_USED = """
    SELECT s.gpu_model, CASE
            WHEN c.state = 'held' THEN 'claimed'
            WHEN c.state = 'scrubbing' THEN 'scrubbing'
            WHEN EXISTS (SELECT FROM drains d WHERE d.target_id IN (s.id, n.id)) THEN 'drained'
            WHEN n.state <> 'ready' OR NOT coalesce((n.inventory->>'ready')::boolean, false) THEN 'away'
            ELSE 'free'
        END, count(*)
    FROM slots s JOIN nodes n ON n.id = s.node_id LEFT JOIN claims c ON c.slot_id = s.id AND c.state <> 'freed'
    WHERE s.state = 'approved' GROUP BY 1, 2
"""


def slots_in_use(tx: Tx) -> dict[tuple[str, str], int]:
    """The approved ones, by GPU model and what becomes of them: one of USES."""
    return {(model, use): many for model, use, many in tx.run(_USED)}


def queue(tx: Tx) -> tuple[int, datetime | None]:
    """How many launches wait, and since when the oldest of them does."""
    c = t.allocations.c
    row = tx.conn.execute(select(func.count(), func.min(c.created_at)).where(c.state == "queued")).one()
    return int(row[0]), row[1]


def longest_silence(tx: Tx) -> float:
    """Seconds since the ready node was heard of that was quiet the longest."""
    oldest = select(func.min(t.nodes.c.last_seen_at)).where(t.nodes.c.state == "ready")
    found = tx.conn.execute(oldest).scalar_one()
    return 0.0 if found is None else max(0.0, (tx.now - found).total_seconds())


def nodes_heard(tx: Tx, after: datetime) -> int:
    heard = (t.nodes.c.last_seen_at > after) & (t.nodes.c.state != "removed")
    return int(tx.conn.execute(select(func.count()).select_from(t.nodes).where(heard)).scalar_one())


def measured(tx: Tx, after: datetime) -> list[Measured]:
    """Machines whose newest sample is younger than `after`."""
    mine = (t.samples.c.allocation_id == t.allocations.c.id) & (t.samples.c.at > after)
    last = select(t.samples).where(mine).order_by(t.samples.c.at.desc()).limit(1).lateral("newest")
    statement = (
        select(
            *(last.c[column.name] for column in columns(t.samples, Sample)),
            t.allocations.c.name.label("machine"),
            t.orgs.c.slug.label("org"),
            t.projects.c.slug.label("project"),
            t.nodes.c.name.label("node"),
        )
        .select_from(t.allocations)
        .join(t.orgs, t.orgs.c.id == t.allocations.c.org_id)
        .join(t.projects, t.projects.c.id == t.allocations.c.project_id)
        .join(t.nodes, t.nodes.c.id == t.allocations.c.node_id)
        .join(last, true())
        .where(t.allocations.c.state != "released")
        .order_by(t.allocations.c.id)
    )
    return [_measured(dict(row._mapping)) for row in tx.conn.execute(statement)]


def _measured(row: dict[str, Any]) -> Measured:
    machine, org, project, node = (row.pop(name) for name in ("machine", "org", "project", "node"))
    gpus = msgspec.convert(row.pop("gpus"), tuple[GpuUse, ...])
    return Measured(machine, org, project, node, Sample(**row, gpus=gpus))
