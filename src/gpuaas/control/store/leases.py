"""Leases of machines, and the policies of their projects."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Float, FromClause, Select, Subquery, case, exists, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, made, names, one
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import IDLE_CPUS, Lease, LeasePolicy
from gpuaas.model.metrics import LONGEST_GAP_SECONDS

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


POLICY = f"SELECT {names(LeasePolicy)} FROM lease_policies WHERE project_id = %(project_id)s"


def policy(tx: Tx, project_id: str) -> LeasePolicy | None:
    row = tx.run(POLICY, {"project_id": project_id}).fetchone()
    return None if row is None else made(LeasePolicy, row)


def set_policy(tx: Tx, wanted: LeasePolicy) -> None:
    values = {name: value for name, value in wanted.__dict__.items() if name != "project_id"}
    statement = upsert(t.lease_policies).values(**wanted.__dict__)
    tx.conn.execute(statement.on_conflict_do_update(index_elements=["project_id"], set_=values))


def held(tx: Tx) -> list[tuple[Allocation, Lease, LeasePolicy | None]]:
    """Every machine whose lease can end, by its own or by its project's policy."""
    a = t.allocations.c
    mine = columns(t.allocations, Allocation)
    statement = select(*mine, *_terms()).select_from(_with_terms()).where(_has_terms())
    found = []
    for row in tx.conn.execute(statement.where(a.state.in_(HELD), a.active_at.is_not(None)).order_by(a.id)):
        values = row._mapping
        allocation = Allocation(**{column.name: values[column.name] for column in mine})
        lease, policy = _read(values)
        found.append((allocation, lease or Lease(allocation.id), policy))
    return found


def _with_terms() -> FromClause:
    a, p = t.allocations.c, t.lease_policies.c
    return t.allocations.outerjoin(t.leases, t.leases.c.allocation_id == a.id).outerjoin(
        t.lease_policies, p.project_id == a.project_id
    )


def _has_terms() -> ColumnElement[bool]:
    return t.leases.c.allocation_id.is_not(None) | t.lease_policies.c.idle_seconds.is_not(None)


def _terms() -> list[ColumnElement[Any]]:
    """Under names of their own: a lease and a policy both have `idle_seconds`."""
    own = [column.label(f"lease_{column.name}") for column in columns(t.leases, Lease)]
    return [*own, *(column.label(f"policy_{column.name}") for column in columns(t.lease_policies, LeasePolicy))]


def _read(row: Mapping[Any, Any]) -> tuple[Lease | None, LeasePolicy | None]:
    lease = {column.name: row[f"lease_{column.name}"] for column in columns(t.leases, Lease)}
    policy = {column.name: row[f"policy_{column.name}"] for column in columns(t.lease_policies, LeasePolicy)}
    return (
        Lease(**lease) if lease["allocation_id"] is not None else None,
        LeasePolicy(**policy) if policy["project_id"] is not None else None,
    )


def was_busy(tx: Tx, allocation_id: str, after: datetime, recent: timedelta, percent: int) -> datetime | None:
    """When it last did something since `after`; None: it did nothing, and was watched while it did.

    A GPU that does not tell is busy, and so is a machine that was not measured: what is not known is not idle.
    """
    session = exists().where(t.sessions.c.allocation_id == allocation_id, t.sessions.c.closed_at.is_(None))
    measured = select(func.max(t.samples.c.at)).where(t.samples.c.allocation_id == allocation_id)
    row = tx.conn.execute(
        select(
            select(session).scalar_subquery().label("somebody"),
            measured.scalar_subquery().label("newest"),
            _busy(allocation_id, after, percent).scalar_subquery().label("busy"),
        )
    ).one()
    if row.somebody or row.newest is None or row.newest < tx.now - recent:
        return tx.now
    found: datetime | None = row.busy
    return found


def was_used(tx: Tx, allocation_id: str, after: datetime, percent: int) -> bool:
    """Whether it is known to have done something since, or somebody was there: who was not measured was not seen."""
    s = t.sessions.c
    there = exists().where(s.allocation_id == allocation_id, s.closed_at.is_(None) | (s.closed_at > after))
    row = tx.conn.execute(select(there, _busy(allocation_id, after, percent).scalar_subquery())).one()
    return bool(row[0]) or row[1] is not None


def _busy(allocation_id: str, after: datetime, percent: int) -> Select[Any]:
    """When it was last measured to do something. Where there is no GPU, it is the CPUs that tell."""
    s = _with_cpu_use(allocation_id, after).c
    gpu = func.jsonb_array_elements(s.gpus).table_valued("value").alias("gpu")
    use = gpu.c.value.op("->>")("busy_percent").cast(Float)
    working = exists(select(1).select_from(gpu).where(use.is_(None) | (use >= percent)))
    computing = (func.jsonb_array_length(s.gpus) == 0) & (s.cpus_used >= IDLE_CPUS)
    return select(func.max(s.at)).where(s.at > after, (s.sessions > 0) | working | computing)


def _with_cpu_use(allocation_id: str, after: datetime) -> Subquery:
    """Its samples since `after`, each with how many CPUs it has used since the one before, if that can be told."""
    s = t.samples.c
    order: Any = {"order_by": s.at}
    seconds = func.extract("epoch", s.at - func.lag(s.at).over(**order))
    grown = s.cpu_seconds - func.lag(s.cpu_seconds).over(**order)
    one_run = (s.started_at == func.lag(s.started_at).over(**order)) & (seconds <= LONGEST_GAP_SECONDS)
    used = case((one_run, grown / seconds)).label("cpus_used")
    begin = after - timedelta(seconds=LONGEST_GAP_SECONDS)
    return select(s.at, s.sessions, s.gpus, used).where(s.allocation_id == allocation_id, s.at > begin).subquery()


def looked(tx: Tx, allocation_id: str, busy_at: datetime | None) -> None:
    changes: dict[str, Any] = {"looked_at": tx.now}
    if busy_at is not None:
        changes["busy_at"] = busy_at
    set_lease(tx, allocation_id, **changes)
