"""Leases of machines, and the policies of their projects."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Float, Select, and_, exists, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import build, columns, one
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import Lease, LeasePolicy

HELD = ("active", "restarting", "failed", "unreachable", "stopped")  # a lease can end in these


def insert_lease(tx: Tx, allocation_id: str, max_seconds: int | None, idle_seconds: int | None) -> None:
    row = {"allocation_id": allocation_id, "max_seconds": max_seconds, "idle_seconds": idle_seconds}
    tx.conn.execute(upsert(t.leases).values(**row))


def set_lease(tx: Tx, allocation_id: str, **changes: Any) -> None:
    """Makes it, where only the project's policy asked for one so far."""
    statement = upsert(t.leases).values(allocation_id=allocation_id, **changes)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["allocation_id"], set_=changes))


def lease(tx: Tx, allocation_id: str) -> Lease:
    """An empty one where there is none. Changed only under the allocation's lock."""
    statement = select(*columns(t.leases, Lease)).where(t.leases.c.allocation_id == allocation_id)
    return one(tx.conn, statement, Lease) or Lease(allocation_id)


def leases(tx: Tx, allocation_ids: Sequence[str]) -> dict[str, Lease]:
    statement = select(*columns(t.leases, Lease)).where(t.leases.c.allocation_id.in_(allocation_ids))
    return {row.allocation_id: build(Lease, row) for row in tx.conn.execute(statement)}


def policy(tx: Tx, project_id: str) -> LeasePolicy | None:
    return policies(tx, [project_id]).get(project_id)


def policies(tx: Tx, project_ids: Sequence[str]) -> dict[str, LeasePolicy]:
    statement = select(*columns(t.lease_policies, LeasePolicy)).where(t.lease_policies.c.project_id.in_(project_ids))
    return {row.project_id: build(LeasePolicy, row) for row in tx.conn.execute(statement)}


def set_policy(tx: Tx, made: LeasePolicy) -> None:
    values = {name: value for name, value in made.__dict__.items() if name != "project_id"}
    statement = upsert(t.lease_policies).values(**made.__dict__)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["project_id"], set_=values))


def held(tx: Tx) -> list[tuple[Allocation, Lease, LeasePolicy | None]]:
    """Every machine whose lease can end, by its own or by its project's policy."""
    found = [build(Allocation, row) for row in tx.conn.execute(_held())]
    own = leases(tx, [item.id for item in found])
    decided = policies(tx, sorted({item.project_id for item in found}))
    return [(item, own.get(item.id, Lease(item.id)), decided.get(item.project_id)) for item in found]


def _held() -> Select[Any]:
    a, p = t.allocations.c, t.lease_policies.c
    return (
        select(*columns(t.allocations, Allocation))
        .outerjoin(t.leases, t.leases.c.allocation_id == a.id)
        .outerjoin(t.lease_policies, and_(p.project_id == a.project_id, p.idle_seconds.is_not(None)))
        .where(a.state.in_(HELD), a.active_at.is_not(None))
        .where(t.leases.c.allocation_id.is_not(None) | p.project_id.is_not(None))
        .order_by(a.id)
    )


def was_busy(tx: Tx, allocation_id: str, after: datetime, recent: timedelta, percent: int) -> datetime | None:
    """When it last did something since `after`; None: it did nothing, and was watched while it did.

    A GPU that does not tell is busy, and so is a machine that was not measured: what is not known is not idle.
    """
    session = exists().where(t.sessions.c.allocation_id == allocation_id, t.sessions.c.closed_at.is_(None))
    s = t.samples.c
    gpu = func.jsonb_array_elements(s.gpus).table_valued("value").alias("gpu")
    use = gpu.c.value.op("->>")("busy_percent").cast(Float)
    working = exists(select(1).select_from(gpu).where(use.is_(None) | (use >= percent)))
    measured = select(func.max(s.at)).where(s.allocation_id == allocation_id)
    row = tx.conn.execute(
        select(
            select(session).scalar_subquery().label("somebody"),
            measured.scalar_subquery().label("newest"),
            measured.where(s.at > after, (s.sessions > 0) | working).scalar_subquery().label("busy"),
        )
    ).one()
    if row.somebody or row.newest is None or row.newest < tx.now - recent:
        return tx.now
    found: datetime | None = row.busy
    return found


def looked(tx: Tx, allocation_id: str, busy_at: datetime | None) -> None:
    changes: dict[str, Any] = {"looked_at": tx.now}
    if busy_at is not None:
        changes["busy_at"] = busy_at
    set_lease(tx, allocation_id, **changes)
