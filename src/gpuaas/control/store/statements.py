"""Closed statements. Written once; a trigger refuses to change one."""

from datetime import datetime

from sqlalchemy import exists, func, select
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Project
from gpuaas.model.statement import Statement


def statements(tx: Tx, project_ids: list[str]) -> list[Statement]:
    """The newest month first."""
    statement = select(*columns(t.statements, Statement)).where(t.statements.c.project_id.in_(project_ids))
    return many(tx.conn, statement.order_by(t.statements.c.starts_at.desc(), t.statements.c.project_id), Statement)


def insert_statement(tx: Tx, made: Statement) -> bool:
    """False when another replica was faster."""
    statement = upsert(t.statements).values(**made.__dict__).on_conflict_do_nothing().returning(t.statements.c.id)
    return tx.conn.execute(statement).first() is not None


def last_end(tx: Tx, project_id: str) -> datetime | None:
    statement = select(func.max(t.statements.c.ends_at)).where(t.statements.c.project_id == project_id)
    found: datetime | None = tx.conn.execute(statement).scalar_one()
    return found


def due(tx: Tx, before: datetime) -> list[Project]:
    """Projects that cost something before, and have no statement that reaches that far."""
    project = t.projects.c.id
    statement = (
        select(*columns(t.projects, Project))
        .where(exists().where(t.usage.c.project_id == project, t.usage.c.started_at < before))
        .where(~exists().where(t.statements.c.project_id == project, t.statements.c.ends_at >= before))
    )
    return many(tx.conn, statement.order_by(project), Project)
