"""Budgets: what a month may cost, and who is told when it does. Nothing is stopped."""

from dataclasses import dataclass
from datetime import datetime

from gpuaas.control.app import access
from gpuaas.control.app.usage import derived
from gpuaas.control.store import budgets, identity
from gpuaas.control.store.transaction import Tx
from gpuaas.model.budget import Budget, reached
from gpuaas.model.identity import Caller
from gpuaas.model.period import month_of
from gpuaas.model.usage import total


@dataclass(frozen=True)
class Standing:
    org_id: str
    project_id: str | None
    month: datetime
    amount_micros: int | None  # None: there is no budget
    spent_micros: int
    alerts: list[int]  # percentages that were told this month


def of_project(tx: Tx, caller: Caller, name: str) -> Standing:
    project = access.in_project(tx, caller, "budget.read", name)
    return _standing(tx, project.org_id, project.id)


def of_org(tx: Tx, caller: Caller, name: str) -> Standing:
    return _standing(tx, access.in_org(tx, caller, "org_usage.read", name).id, None)


def set_project(tx: Tx, caller: Caller, name: str, amount_micros: int | None) -> Standing:
    """None: no budget any more."""
    project = access.in_project(tx, caller, "budget.write", name)
    return _set(tx, project.org_id, project.id, amount_micros)


def set_org(tx: Tx, caller: Caller, name: str, amount_micros: int | None) -> Standing:
    return _set(tx, access.in_org(tx, caller, "org_budget.write", name).id, None, amount_micros)


def alert(tx: Tx, budget: Budget) -> int:
    """Tells what was not told yet; how many."""
    month, _ = month_of(tx.now)
    told = budgets.given(tx, budget, month)
    spent = _spent(tx, budget.org_id, budget.project_id)
    new = [percent for percent in reached(budget.amount_micros, spent) if percent not in told]
    for percent in new:
        if budgets.give(tx, budget, month, percent):
            _tell(tx, budget, month, percent, spent)
    return len(new)


def _tell(tx: Tx, budget: Budget, month: datetime, percent: int, spent: int) -> None:
    """An org's budget concerns all of its projects."""
    for project_id in [budget.project_id] if budget.project_id else identity.project_ids(tx, budget.org_id):
        tx.emit(
            "budget.alert",
            org_id=budget.org_id,
            project_id=project_id,
            kind="budget",
            id=budget.id,
            of="project" if budget.project_id else "org",
            percent=percent,
            month=f"{month:%Y-%m}",
            amount_micros=budget.amount_micros,
            spent_micros=spent,
        )


def _set(tx: Tx, org_id: str, project_id: str | None, amount_micros: int | None) -> Standing:
    if amount_micros is None:
        budgets.remove_budget(tx, org_id, project_id)
    else:
        budgets.set_budget(tx, org_id, project_id, amount_micros)
    tx.audit(
        "budget.set" if amount_micros is not None else "budget.remove",
        org_id=org_id,
        project_id=project_id,
        kind="project" if project_id else "org",
        id=project_id or org_id,
        amount_micros=amount_micros,
    )
    tx.wake("budgets")
    return _standing(tx, org_id, project_id)


def _standing(tx: Tx, org_id: str, project_id: str | None) -> Standing:
    found, (month, _) = budgets.budget(tx, org_id, project_id), month_of(tx.now)
    return Standing(
        org_id,
        project_id,
        month,
        found.amount_micros if found else None,
        _spent(tx, org_id, project_id),
        budgets.given(tx, found, month) if found else [],
    )


def _spent(tx: Tx, org_id: str, project_id: str | None) -> int:
    ids = [project_id] if project_id else identity.project_ids(tx, org_id)
    return total(derived(tx, ids, *month_of(tx.now))).amount_micros
