"""Budgets that are half, nearly or wholly spent: their projects are told, once each."""

from gpuaas.control.app import budgets as spending
from gpuaas.control.store import budgets
from gpuaas.control.store.transaction import Store


def sweep(store: Store) -> int:
    return sum(store.transact(spending.alert, budget) for budget in store.transact(budgets.budgets))
