"""Operations and their phases. `end` is the only writer of their state."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, literal, select, tuple_

from gpuaas.control.store import tables as t
from gpuaas.control.store.exchange import Answer
from gpuaas.control.store.rows import columns, jsonb, made, many, names, one
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.model.allocation import Allocation
from gpuaas.model.lifecycle import OPERATION
from gpuaas.model.operation import Kind, Operation, failed, fresh_phases

Phases = list[dict[str, Any]]


def start(tx: Tx, allocation: Allocation, kind: Kind, facet: str = "") -> Operation:
    """A new operation for the allocation's wanted generation. Whatever is open on the facet is superseded."""
    for current in running(tx, allocation.id):
        if kind.absorbs or current.facet == (facet or kind.facet):
            end(tx, current, "supersede", message=f"superseded by {kind.name}")
    return first(tx, allocation, kind, fresh_phases(kind, tx.now.timestamp()), facet)


_INSERT = f"""
    INSERT INTO operations ({names(Operation)})
    VALUES ({", ".join(f"%({name})s" for name in names(Operation).split(", "))})
"""


def first(tx: Tx, allocation: Allocation, kind: Kind, phases: Phases, facet: str = "") -> Operation:
    """The same where nothing can be open: on a facet that was cleared, of an allocation that was just made."""
    operation = Operation(
        id=tx.ids.new("op"),
        kind=kind.name,
        facet=facet or kind.facet,
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        allocation_id=allocation.id,
        state=OPERATION.initial,
        generation=allocation.generation,
        phases=phases,
        failure_code=None,
        failure_message=None,
        created_by=tx.actor,
        created_at=tx.now,
        finished_at=None,
        correlation_id=tx.correlation_id,
    )
    tx.later(_INSERT, {**operation.__dict__, "phases": jsonb(phases)})
    _tell(tx, operation, "operation.started")
    return operation


def _select() -> Select[Any]:
    return select(*columns(t.operations, Operation))


def by_id(tx: Tx, id: str) -> Operation | None:
    row = tx.run(f"SELECT {names(Operation)} FROM operations WHERE id = %(id)s", {"id": id}).fetchone()
    return None if row is None else made(Operation, row)


def open_(tx: Tx, allocation_id: str, facet: str) -> Operation | None:
    statement = _select().where(
        t.operations.c.allocation_id == allocation_id, t.operations.c.facet == facet, t.operations.c.state == "running"
    )
    return one(tx.conn, statement, Operation)


def correlation_ids(tx: Tx, allocation_ids: list[str]) -> dict[str, str]:
    """By machine: under which id the newest of its open changes was asked for."""
    c = t.operations.c
    open_ = c.allocation_id.in_(allocation_ids) & (c.state == "running") & c.correlation_id.is_not(None)
    rows = tx.conn.execute(select(c.allocation_id, c.correlation_id).where(open_).order_by(c.created_at))
    return {row.allocation_id: row.correlation_id for row in rows}


_RUNNING = f"""
    SELECT {names(Operation)} FROM operations WHERE allocation_id = %(id)s AND state = 'running'
    ORDER BY created_at, id
"""


def running(tx: Tx, allocation_id: str) -> list[Operation]:
    """What is open on any facet, oldest first."""
    return [made(Operation, row) for row in tx.run(_RUNNING, {"id": allocation_id})]


def page(
    tx: Tx, project_ids: list[str], allocation_id: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[Operation]:
    statement = _select().where(t.operations.c.project_id.in_(project_ids))
    if allocation_id:
        statement = statement.where(t.operations.c.allocation_id == allocation_id)
    if after:
        at, id = after
        statement = statement.where(
            tuple_(t.operations.c.created_at, t.operations.c.id) < tuple_(literal(at), literal(id))
        )
    return many(
        tx.conn,
        statement.order_by(t.operations.c.created_at.desc(), t.operations.c.id.desc()).limit(limit),
        Operation,
    )


_SET_PHASES = """
    UPDATE operations SET phases = %(phases)s, generation = coalesce(%(generation)s, generation)
    WHERE id = %(id)s AND state = 'running'
"""
_END = """
    UPDATE operations SET state = %(becomes)s, phases = %(phases)s, finished_at = %(now)s, failure_code = %(code)s,
        failure_message = %(message)s
    WHERE id = %(id)s AND state = %(state)s
"""


def set_phases(tx: Tx, operation: Operation, phases: Phases, generation: int | None = None) -> None:
    if phases == operation.phases and generation is None:
        return
    tx.later(_SET_PHASES, {"id": operation.id, "phases": jsonb(phases), "generation": generation})
    tx.wake(f"operation:{operation.id}")


def end(
    tx: Tx,
    operation: Operation,
    event: str,
    *,
    code: str | None = None,
    message: str = "",
    phases: Phases | None = None,
) -> None:
    becomes = OPERATION.next(operation.state, event)
    if becomes is None:
        raise Stale(f"operation {operation.id} is {operation.state}")
    phases = phases if phases is not None else operation.phases
    if becomes != "succeeded":
        phases = failed(phases, tx.now.timestamp(), message)
    values = {
        "id": operation.id,
        "state": operation.state,
        "becomes": becomes,
        "phases": jsonb(phases),
        "now": tx.now,
        "code": code if becomes == "failed" else None,
        "message": message if becomes != "succeeded" else None,
    }

    def check(ended: Answer) -> None:
        if ended.rowcount != 1:
            raise Stale(f"operation {operation.id} ended")

    tx.later(_END, values, check)
    tx.wake(f"operation:{operation.id}")
    _measure(tx, operation, becomes, phases)
    _tell(tx, operation, f"operation.{becomes}", message)


def _tell(tx: Tx, operation: Operation, type: str, message: str = "") -> None:
    tx.emit(
        type,
        org_id=operation.org_id,
        project_id=operation.project_id,
        kind="operation",
        id=operation.id,
        operation=operation.kind,
        allocation_id=operation.allocation_id,
        message=message,
    )


def _measure(tx: Tx, operation: Operation, becomes: str, phases: Phases) -> None:
    tx.measure("operations_total", 1, kind=operation.kind, state=becomes)
    about = {"gpuaas__operation": operation.id, "gpuaas__allocation": operation.allocation_id, "gpuaas__state": becomes}
    begun, ended = operation.created_at.timestamp(), tx.now.timestamp()
    tx.trace(f"operation {operation.kind}", operation.correlation_id, begun, ended, **about)
    for phase in phases:
        if phase["started_at"] is not None and phase["finished_at"] is not None:
            tx.trace(
                f"phase {phase['name']}", operation.correlation_id, phase["started_at"], phase["finished_at"], **about
            )
    if operation.kind != "launch" or becomes != "succeeded":
        return
    tx.measure("launch_seconds", (tx.now - operation.created_at).total_seconds())
    for phase in phases:
        if phase["started_at"] is not None and phase["finished_at"] is not None:
            tx.measure("launch_phase_seconds", phase["finished_at"] - phase["started_at"], phase=phase["name"])
