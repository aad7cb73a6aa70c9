"""Months that are over become statements, project by project, once nothing of them can change."""

from functools import partial

from gpuaas.control.app.statements import SETTLE, close_due
from gpuaas.control.store import statements
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.control.sweeps.each import each
from gpuaas.model.identity import Project
from gpuaas.model.period import month_of


def sweep(store: Store) -> int:
    return each((project.id, partial(store.transact, close_due, project)) for project in store.transact(due))


def due(tx: Tx) -> list[Project]:
    return statements.due(tx, month_of(tx.now - SETTLE)[0])
