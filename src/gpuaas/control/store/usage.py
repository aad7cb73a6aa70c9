"""The usage ledger: intervals in which something costs, written with the state change that starts or ends them."""

from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Select, func, insert, select
from sqlalchemy.dialects.postgresql import JSONB

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.price import Shape
from gpuaas.model.usage import MACHINE_TIME, Correction, Interval

# One statement, because every launch and every restart of a lost machine pays for it. The beginning never lies before
# the end of the interval before: a transaction that waited for the machine's lock has an older `now` than who had it.
_OPEN = """
    INSERT INTO usage (id, org_id, project_id, resource_id, user_id, component, shape, terms, gpus, started_at,
        correlation_id)
    SELECT %(id)s, a.org_id, a.project_id, a.id, a.owner_id, %(component)s, a.offer_id,
        jsonb_build_object(
            'offer', o.slug, 'gpu_model', o.gpu_model, 'gpu_count', o.gpu_count, 'cpus', o.cpus,
            'memory_mib', o.memory_mib, 'list_price_micros_per_hour', o.price_micros_per_hour
        ),
        ARRAY(
            SELECT gpu FROM claims c JOIN slots s ON s.id = c.slot_id, unnest(s.gpus) AS gpu
            WHERE c.allocation_id = a.id AND c.state = 'held' ORDER BY gpu
        ),
        greatest(%(now)s, (SELECT u.ended_at FROM usage u WHERE u.resource_id = a.id AND u.component = %(component)s
            ORDER BY u.started_at DESC, u.ended_at DESC LIMIT 1)),
        %(correlation_id)s
    FROM allocations a JOIN offers o ON o.id = a.offer_id WHERE a.id = %(allocation)s
"""


_CLOSE = """
    UPDATE usage SET ended_at = greatest(started_at, %(at)s)
    WHERE resource_id = %(resource_id)s AND component = %(component)s AND ended_at IS NULL
"""


def open_(tx: Tx, allocation: Allocation) -> None:
    """From now on the machine costs, as what it is now."""
    tx.later(
        _OPEN,
        {
            "id": tx.ids.new("ug"),
            "allocation": allocation.id,
            "component": MACHINE_TIME,
            "now": tx.now,
            "correlation_id": tx.correlation_id,
        },
    )


def close(tx: Tx, resource_id: str, component: str, at: datetime) -> None:
    """`at` may lie before now (a node that fell silent), never before the interval began."""
    tx.later(_CLOSE, {"resource_id": resource_id, "component": component, "at": at})


def intervals(tx: Tx, project_ids: list[str], begin: datetime, end: datetime) -> list[Interval]:
    """All that reach into a period."""
    inside = (t.usage.c.started_at < end) & (t.usage.c.ended_at.is_(None) | (t.usage.c.ended_at > begin))
    statement = _select().where(t.usage.c.project_id.in_(project_ids), inside)
    return [_interval(row) for row in tx.conn.execute(statement.order_by(t.usage.c.started_at, t.usage.c.id))]


def interval(tx: Tx, id: str, *, lock: bool = False) -> Interval | None:
    statement = _select().where(t.usage.c.id == id)
    row = tx.conn.execute(statement.with_for_update(key_share=True, of=t.usage) if lock else statement).one_or_none()
    return None if row is None else _interval(row)


def corrections(tx: Tx, project_ids: list[str], begin: datetime, end: datetime) -> list[tuple[Correction, Interval]]:
    """Those that were recorded in a period, with what they correct."""
    c = t.corrections.c
    statement = select(*columns(t.corrections, Correction)).where(c.project_id.in_(project_ids))
    found = list(tx.conn.execute(statement.where(c.created_at >= begin, c.created_at < end).order_by(c.id)))
    of = {row.usage_id for row in found}
    known = {row.id: _interval(row) for row in tx.conn.execute(_select().where(t.usage.c.id.in_(sorted(of))))}
    return [(Correction(**row._mapping), known[row.usage_id]) for row in found]


def corrections_of(tx: Tx, usage_id: str) -> list[Correction]:
    statement = select(*columns(t.corrections, Correction)).where(t.corrections.c.usage_id == usage_id)
    return [Correction(**row._mapping) for row in tx.conn.execute(statement.order_by(t.corrections.c.started_at))]


def insert_correction(tx: Tx, interval: Interval, begin: datetime, end: datetime, reason: str) -> Correction:
    made = Correction(tx.ids.new("uc"), interval.id, interval.project_id, begin, end, reason, tx.actor, tx.now)
    tx.conn.execute(insert(t.corrections).values(org_id=interval.org_id, **made.__dict__))
    return made


def first(tx: Tx, project_id: str) -> datetime | None:
    """When something of the project cost for the first time."""
    statement = select(func.min(t.usage.c.started_at)).where(t.usage.c.project_id == project_id)
    found: datetime | None = tx.conn.execute(statement).scalar_one()
    return found


def is_settled(tx: Tx, project_id: str, end: datetime) -> bool:
    """Whether nothing can change before `end` any more: each open interval is of a node that was heard after it.

    A node that falls silent ends its intervals when it was last heard, which may be long before anybody notices.
    """
    open_before = (
        select(t.usage.c.id)
        .join(t.allocations, t.allocations.c.id == t.usage.c.resource_id)
        .join(t.nodes, t.nodes.c.id == t.allocations.c.node_id)
        .where(t.usage.c.project_id == project_id, t.usage.c.ended_at.is_(None), t.usage.c.started_at < end)
        .where(t.nodes.c.last_seen_at.is_(None) | (t.nodes.c.last_seen_at < end))
    )
    return tx.conn.execute(open_before.limit(1)).first() is None


def _select() -> Select[Any]:
    """Where a server of the version before has written it, the terms are those of the offer."""
    offer = t.offers.c
    terms = func.jsonb_build_object(
        *("offer", offer.slug, "gpu_model", offer.gpu_model, "gpu_count", offer.gpu_count, "cpus", offer.cpus),
        *("memory_mib", offer.memory_mib, "list_price_micros_per_hour", offer.price_micros_per_hour),
    )
    plain = [t.usage.c[field.name] for field in fields(Interval) if field.name != "shape"]
    return select(*plain, func.coalesce(t.usage.c.terms, terms, type_=JSONB).label("terms")).outerjoin(
        t.offers, offer.id == t.usage.c.shape
    )


def _interval(row: Row[Any]) -> Interval:
    values = dict(row._mapping)
    shape = msgspec.convert(values.pop("terms"), Shape)
    return Interval(**{**values, "shape": shape, "gpus": tuple(row.gpus)})
