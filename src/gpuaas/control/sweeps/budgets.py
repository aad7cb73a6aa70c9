"""Budgets that are half, nearly or wholly spent: their projects are told, once each."""

from functools import partial

from gpuaas.control.app import budgets as spending
from gpuaas.control.store import budgets
from gpuaas.control.store.transaction import Store
from gpuaas.control.sweeps.each import each


def sweep(store: Store) -> int:
    found = store.transact(budgets.budgets)
    return each((budget.id, partial(store.transact, spending.alert, budget)) for budget in found)
