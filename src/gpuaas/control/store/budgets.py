"""Budgets, and which of their alerts were given."""

from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many, one
from gpuaas.control.store.transaction import Tx
from gpuaas.model.budget import Budget


def budget(tx: Tx, org_id: str, project_id: str | None) -> Budget | None:
    """Of a project, or of the whole org."""
    statement = select(*columns(t.budgets, Budget)).where(
        t.budgets.c.org_id == org_id, t.budgets.c.project_id.is_not_distinct_from(project_id)
    )
    return one(tx.conn, statement, Budget)


def budgets(tx: Tx) -> list[Budget]:
    return many(tx.conn, select(*columns(t.budgets, Budget)).order_by(t.budgets.c.id), Budget)


def set_budget(tx: Tx, org_id: str, project_id: str | None, amount_micros: int) -> None:
    row = {"id": tx.ids.new("bu"), "org_id": org_id, "project_id": project_id, "amount_micros": amount_micros}
    statement = upsert(t.budgets).values(**row, created_by=tx.actor, created_at=tx.now)
    of_project = t.budgets.c.project_id.is_not(None) if project_id else t.budgets.c.project_id.is_(None)
    tx.conn.execute(
        statement.on_conflict_do_update(
            index_elements=["project_id" if project_id else "org_id"],
            index_where=of_project,
            set_={"amount_micros": amount_micros, "created_by": tx.actor, "created_at": tx.now},
        )
    )


def remove_budget(tx: Tx, org_id: str, project_id: str | None) -> None:
    tx.conn.execute(
        delete(t.budgets).where(t.budgets.c.org_id == org_id, t.budgets.c.project_id.is_not_distinct_from(project_id))
    )


def given(tx: Tx, budget: Budget, month: datetime) -> list[int]:
    """The percentages that were told this month, for this amount."""
    a = t.budget_alerts.c
    statement = select(a.percent).where(
        a.budget_id == budget.id, a.month == month, a.amount_micros == budget.amount_micros
    )
    return sorted(tx.conn.execute(statement).scalars())


def give(tx: Tx, budget: Budget, month: datetime, percent: int) -> bool:
    """Whether this is the first time."""
    row = {"budget_id": budget.id, "month": month, "amount_micros": budget.amount_micros, "percent": percent}
    statement = upsert(t.budget_alerts).values(**row, created_at=tx.now).on_conflict_do_nothing()
    return tx.conn.execute(statement.returning(t.budget_alerts.c.percent)).first() is not None
