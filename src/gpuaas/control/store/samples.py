"""Samples of running machines: taken in, read back, thinned and forgotten. Nothing else depends on them."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, delete, select, true, tuple_
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns
from gpuaas.control.store.transaction import Tx
from gpuaas.model.sample import GpuUse, Sample

RAW_KEPT = timedelta(hours=1)
KEPT = timedelta(hours=24)


def newest_times(tx: Tx, node_id: str, allocation_ids: list[str]) -> dict[str, datetime | None]:
    """When each was last sampled. What is not on this node is left out."""
    last = _newest(1)
    statement = (
        select(t.allocations.c.id, last.c.at)
        .outerjoin(last, true())
        .where(
            t.allocations.c.node_id == node_id,
            t.allocations.c.reaped_at.is_(None),
            t.allocations.c.id.in_(allocation_ids),
        )
    )
    return {row.id: row.at for row in tx.conn.execute(statement)}


def insert_samples(tx: Tx, rows: list[dict[str, Any]]) -> None:
    if rows:
        tx.conn.execute(upsert(t.samples).on_conflict_do_nothing(), rows)


def since(tx: Tx, allocation_id: str, begin: datetime) -> list[Sample]:
    """Oldest first, with the one before `begin`: rates need something to start from."""
    mine = t.samples.c.allocation_id == allocation_id
    before = select(t.samples.c.at).where(mine, t.samples.c.at < begin).order_by(t.samples.c.at.desc()).limit(1)
    first = tx.conn.execute(before).scalar_one_or_none() or begin
    return _samples(tx, _select().where(mine, t.samples.c.at >= first).order_by(t.samples.c.at))


def newest(tx: Tx, allocation_ids: list[str], after: datetime) -> dict[str, list[Sample]]:
    """The newest two of each, oldest first: what there is, and what its rates are counted from."""
    last = _newest(2)
    statement = (
        select(*(last.c[column.name] for column in columns(t.samples, Sample)))
        .select_from(t.allocations)
        .join(last, true())
        .where(t.allocations.c.id.in_(allocation_ids), last.c.at > after)
        .order_by(last.c.allocation_id, last.c.at)
    )
    found = defaultdict(list)
    for sample in _samples(tx, statement):
        found[sample.allocation_id].append(sample)
    return dict(found)


def forget(tx: Tx, limit: int) -> int:
    """Deletes at most `limit` of those that nobody can ask for any more; how many."""
    old = t.samples.c.first_of_minute & (t.samples.c.at < tx.now - KEPT)
    return _delete(tx, old, limit)


def thin(tx: Tx, limit: int) -> int:
    """Deletes at most `limit` of those that are not the first one of their minute; how many."""
    raw = ~t.samples.c.first_of_minute & (t.samples.c.at < tx.now - RAW_KEPT)
    return _delete(tx, raw, limit)


def _delete(tx: Tx, which: ColumnElement[bool], limit: int) -> int:
    key = (t.samples.c.allocation_id, t.samples.c.at)
    # Skipped: what another replica is deleting at the same time.
    chosen = select(*key).where(which).order_by(t.samples.c.at).limit(limit).with_for_update(skip_locked=True)
    return tx.conn.execute(delete(t.samples).where(tuple_(*key).in_(chosen))).rowcount


def _newest(count: int) -> Any:
    """Beside each row of `allocations`. By index: a few rows each, however long the history is."""
    mine = t.samples.c.allocation_id == t.allocations.c.id
    return select(t.samples).where(mine).order_by(t.samples.c.at.desc()).limit(count).lateral("newest")


def _select() -> Select[Any]:
    return select(*columns(t.samples, Sample))


def _samples(tx: Tx, statement: Select[Any]) -> list[Sample]:
    return [_sample(row) for row in tx.conn.execute(statement)]


def _sample(row: Row[Any]) -> Sample:
    gpus = msgspec.convert(row.gpus, tuple[GpuUse, ...])
    return Sample(**{**row._mapping, "gpus": gpus})
