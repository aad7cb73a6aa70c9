"""What people are shown with a machine: its offer's name, where it is reached, its lease. One statement for a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx
from gpuaas.model.lease import Lease, LeasePolicy


@dataclass(frozen=True)
class Surroundings:
    offer: str
    address: str | None  # of the node, for users
    lease: Lease | None
    policy: LeasePolicy | None  # of the project
    preempted_at: datetime | None = None  # when it has to be gone


# An inventory is large, and nodes are few: each is opened once, not once for every machine on it.
_SURROUNDINGS = f"""
    WITH item AS (SELECT id, project_id, offer_id, node_id FROM allocations WHERE id = ANY(%(ids)s)),
    node AS MATERIALIZED (
        SELECT id, inventory ->> 'address' AS address FROM nodes WHERE id IN (SELECT node_id FROM item)
    )
    SELECT item.id, offers.slug, node.address, preemptions.due_at,
        {names(Lease, "leases")}, {names(LeasePolicy, "lease_policies")}
    FROM item
    JOIN offers ON offers.id = item.offer_id
    LEFT JOIN node ON node.id = item.node_id
    LEFT JOIN preemptions ON preemptions.allocation_id = item.id
    LEFT JOIN leases ON leases.allocation_id = item.id
    LEFT JOIN lease_policies ON lease_policies.project_id = item.project_id
"""
_LEASE = 4
_POLICY = _LEASE + len(names(Lease).split(", "))


def surroundings(tx: Tx, ids: Sequence[str]) -> dict[str, Surroundings]:
    found = {}
    for row in tx.run(_SURROUNDINGS, {"ids": list(ids)}):
        lease, policy = row[_LEASE:_POLICY], row[_POLICY:]
        found[row[0]] = Surroundings(
            row[1],
            row[2] or None,
            made(Lease, lease) if lease[0] is not None else None,
            made(LeasePolicy, policy) if policy[0] is not None else None,
            row[3],
        )
    return found
