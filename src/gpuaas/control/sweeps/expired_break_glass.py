"""A break-glass whose time is over gives no right any more; here the tenant is told."""

from gpuaas.control.app import break_glass
from gpuaas.control.store.transaction import Store


def sweep(store: Store) -> int:
    return store.transact(break_glass.expire)
