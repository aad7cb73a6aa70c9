"""Machines as people are shown them: with the offer's name, where it is reached, its lease. One statement."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from gpuaas.control.store.allocations import Asked, finding, having, paging
from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Along, Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import Lease, LeasePolicy


class Surroundings(NamedTuple):
    offer: str
    address: str | None  # of the node, for users
    lease: Lease | None
    policy: LeasePolicy | None  # of the project
    preempted_at: datetime | None = None  # when it has to be gone


Shown = tuple[Allocation, Surroundings]
After = tuple[datetime, str] | None


def page(tx: Tx, project_ids: list[str], live: bool, after: After, limit: int) -> list[Shown]:
    """As `allocations.page`."""
    return _known(tx, page_along(live, after, limit), project_ids)


def page_along(live: bool, after: After, limit: int) -> Along:
    return _along(("page", live, after, limit), paging([], live, after, limit))


def find(tx: Tx, name: str, project_ids: list[str]) -> list[Shown]:
    """As `allocations.find`."""
    return _known(tx, find_along(name), project_ids)


def find_along(name: str) -> Along:
    return _along(("find", name), finding(name, []))


def _along(question: tuple[Any, ...], asked: Asked) -> Along:
    statement, values = asked
    return Along(question, _shown(statement), values, _COLUMNS)


def _known(tx: Tx, along: Along, project_ids: list[str]) -> list[Shown]:
    """What came along with the caller, if it is about the same; else it is asked now."""
    came = tx.came
    if came is not None and came.question == along.question and came.project_ids == set(project_ids):
        return sorted((_made(row) for row in came.rows), key=_newest, reverse=True)
    rows = tx.run(along.statement, {**along.values, "projects": project_ids}).fetchall()
    return [_made(row) for row in rows]


def _newest(shown: Shown) -> tuple[datetime, str]:
    return shown[0].created_at, shown[0].id


def of(tx: Tx, items: Sequence[Allocation]) -> list[Shown]:
    """Of those that are known already, in their order."""
    statement, values = having([item.id for item in items])
    rows = tx.run(_shown(statement), values).fetchall()
    around = {item.id: found for item, found in map(_made, rows)}
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


@cache
def _shown(items: str) -> str:
    return _SHOWN.format(items=items)


_AROUND = len(names(Allocation).split(", "))
_LEASE = _AROUND + 3
_POLICY = _LEASE + len(names(Lease).split(", "))
_COLUMNS = _POLICY + len(names(LeasePolicy).split(", "))


def _made(row: tuple[Any, ...]) -> Shown:
    offer, address, preempted_at = row[_AROUND:_LEASE]
    lease = made(Lease, row[_LEASE:_POLICY]) if row[_LEASE] is not None else None
    policy = made(LeasePolicy, row[_POLICY:]) if row[_POLICY] is not None else None
    return made(Allocation, row[:_AROUND]), Surroundings(offer, address or None, lease, policy, preempted_at)
