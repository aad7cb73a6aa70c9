"""Queued launches are placed when something fits: oldest first, whole groups, one transaction per group."""

from gpuaas.control.operations import launch
from gpuaas.control.store import allocations, offers
from gpuaas.control.store.transaction import Store, Tx

AT_ONCE = 100


def sweep(store: Store) -> int:
    placed = 0
    for group_id in store.transact(waiting_groups):
        placed += store.transact(place_group, group_id)
    return placed


def waiting_groups(tx: Tx) -> list[str]:
    return list(dict.fromkeys(allocation.group_id for allocation in allocations.queued(tx, AT_ONCE)))


def place_group(tx: Tx, group_id: str) -> int:
    """Members that were cancelled meanwhile no longer count; the rest is still all or none."""
    group = [allocation for allocation in allocations.group(tx, group_id) if allocation.state == "queued"]
    if not group:
        return 0
    offer = offers.offer(tx, group[0].offer_id)
    assert offer is not None
    return len(group) if launch.place(tx, group, offer).fits else 0
