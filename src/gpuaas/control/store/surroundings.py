"""Machines as people are shown them: with the offer's name, where it is reached, its lease. One statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuaas.control.store.allocations import Asked, finding, having, paging
from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import Lease, LeasePolicy


@dataclass(frozen=True)
class Surroundings:
    offer: str
    address: str | None  # of the node, for users
    lease: Lease | None
    policy: LeasePolicy | None  # of the project
    preempted_at: datetime | None = None  # when it has to be gone


Shown = tuple[Allocation, Surroundings]


def page(tx: Tx, project_ids: list[str], live: bool, after: tuple[datetime, str] | None, limit: int) -> list[Shown]:
    """As `allocations.page`."""
    return _shown(tx, paging(project_ids, live, after, limit))


def find(tx: Tx, name: str, project_ids: list[str]) -> list[Shown]:
    """As `allocations.find`."""
    return _shown(tx, finding(name, project_ids))


def of(tx: Tx, items: Sequence[Allocation]) -> list[Shown]:
    """Of those that are known already, in their order."""
    around = {item.id: found for item, found in _shown(tx, having([item.id for item in items]))}
    return [(item, around[item.id]) for item in items]


# An inventory is large, and nodes are few: each is opened once, not once for every machine on it.
_SHOWN = f"""
    WITH item AS ({{items}}),
    node AS MATERIALIZED (
        SELECT id, inventory ->> 'address' AS address FROM nodes WHERE id IN (SELECT node_id FROM item)
    )
    SELECT {names(Allocation, "item")}, offers.slug, node.address, preemptions.due_at,
        {names(Lease, "leases")}, {names(LeasePolicy, "lease_policies")}
    FROM item
    JOIN offers ON offers.id = item.offer_id
    LEFT JOIN node ON node.id = item.node_id
    LEFT JOIN preemptions ON preemptions.allocation_id = item.id
    LEFT JOIN leases ON leases.allocation_id = item.id
    LEFT JOIN lease_policies ON lease_policies.project_id = item.project_id
    ORDER BY item.created_at DESC, item.id DESC
"""
_AROUND = len(names(Allocation).split(", "))
_LEASE = _AROUND + 3
_POLICY = _LEASE + len(names(Lease).split(", "))


def _shown(tx: Tx, asked: Asked) -> list[Shown]:
    items, values = asked
    return [_made(row) for row in tx.run(_SHOWN.format(items=items), values).fetchall()]


def _made(row: tuple[Any, ...]) -> Shown:
    offer, address, preempted_at = row[_AROUND:_LEASE]
    lease = made(Lease, row[_LEASE:_POLICY]) if row[_LEASE] is not None else None
    policy = made(LeasePolicy, row[_POLICY:]) if row[_POLICY] is not None else None
    return made(Allocation, row[:_AROUND]), Surroundings(offer, address or None, lease, policy, preempted_at)
