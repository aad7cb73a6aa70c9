"""Answers kept for Idempotency-Keys are forgotten after two days."""

from gpuaas.control.store import idempotency
from gpuaas.control.store.transaction import Store


def sweep(store: Store) -> int:
    return store.transact(idempotency.forget_old)
