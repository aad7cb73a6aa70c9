"""Machines as people are shown them: with the offer's name, where it is reached, its lease. One statement.

Who only reads is told first of each machine whether anything about it has changed: its mark. What was shown under the
same mark on this connection is shown again (decision 0020).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from gpuaas.control.store.allocations import Which, finding, having, paging
from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Along, Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.lease import Lease, LeasePolicy

KEPT = 1_000  # machines that one connection remembers; then it begins anew


class Surroundings(NamedTuple):
    offer: str
    address: str | None  # of the node, for users
    lease: Lease | None
    policy: LeasePolicy | None  # of the project
    preempted_at: datetime | None = None  # when it has to be gone for others
    drained_at: datetime | None = None  # or because its node or slot is drained


@dataclass(slots=True)
class Shown:
    item: Allocation
    around: Surroundings
    written: Any = field(default=None, compare=False)  # by whoever sends it; good for as long as this is


After = tuple[datetime, str] | None
Mark = tuple[Any, ...]


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


def _along(question: tuple[Any, ...], which: Which) -> Along:
    machines, values = which
    return Along(question, _marks(machines), values, _MARK)


def _known(tx: Tx, along: Along, project_ids: list[str]) -> list[Shown]:
    """What came along with the caller, if it is about the same; else it is asked now."""
    came = tx.came
    if came is not None and came.question == along.question and came.project_ids == set(project_ids):
        marks = came.rows
    else:
        marks = tx.run(along.statement, {**along.values, "projects": project_ids}).fetchall()
    return sorted(_marked(tx, marks), key=_newest, reverse=True)


def _newest(shown: Shown) -> tuple[datetime, str]:
    return shown.item.created_at, shown.item.id


def _marked(tx: Tx, marks: Sequence[Mark]) -> list[Shown]:
    """A mark that is known means what it meant. Not in what writes: there, a row may change and keep its mark."""
    kept: dict[Mark, Shown] = tx.connection.info.setdefault("shown", {}) if tx.reads else {}
    found = [kept.get(mark) for mark in marks]
    if unknown := [mark[0] for mark, shown in zip(marks, found, strict=True) if shown is None]:
        if len(kept) + len(unknown) > KEPT:
            kept.clear()
        rows = tx.run(*_asked(unknown)).fetchall()
        kept.update((row[:_MARK], _made(row[_MARK:])) for row in rows)
        new = {row[0]: kept[row[:_MARK]] for row in rows}  # what has changed since it was marked, too
        found = [shown or new[mark[0]] for mark, shown in zip(marks, found, strict=True)]
    return [shown for shown in found if shown is not None]


def of(tx: Tx, items: Sequence[Allocation]) -> list[Shown]:
    """Of those that are known already, in their order."""
    rows = tx.run(*_asked([item.id for item in items])).fetchall()
    around = {row[0]: _made(row[_MARK:]).around for row in rows}
    return [Shown(item, around[item.id]) for item in items]


def _asked(ids: list[str]) -> Which:
    machines, values = having(ids)
    return _shown(machines), values


# Of each row who wrote it last (`xmin`): whoever changes it leaves another number there. A node's row changes with
# every heartbeat, so what is shown of it stands for it; and so does the first deadline, of several drains.
_ROWS = ("item.xmin", "offers.xmin", "preemptions.xmin", "leases.xmin", "lease_policies.xmin")
_MARKS = ("item.id", *_ROWS, "node.address", "drained.at")
_MARK = len(_MARKS)
# An inventory is large, and nodes are few: each is opened once, not once for every machine on it.
_SHOWN = f"""
    WITH item AS (SELECT {{columns}}, xmin FROM allocations {{machines}}),
    node AS MATERIALIZED (
        SELECT id, inventory ->> 'address' AS address FROM nodes WHERE id IN (SELECT node_id FROM item)
    )
    SELECT {", ".join(_MARKS)} {{more}}
    FROM item
    JOIN offers ON offers.id = item.offer_id
    LEFT JOIN node ON node.id = item.node_id
    LEFT JOIN preemptions ON preemptions.allocation_id = item.id
    LEFT JOIN leases ON leases.allocation_id = item.id
    LEFT JOIN lease_policies ON lease_policies.project_id = item.project_id
    LEFT JOIN LATERAL (
        SELECT min(deadline) AS at FROM drains WHERE drains.node_id = item.node_id AND (slot_id IS NULL OR EXISTS (
            SELECT FROM claims c WHERE c.allocation_id = item.id AND c.slot_id = drains.slot_id AND c.state = 'held'
        ))
    ) AS drained ON true
"""


@cache
def _marks(machines: str) -> str:
    return _SHOWN.format(columns="id, project_id, offer_id, node_id", machines=machines, more="")


@cache
def _shown(machines: str) -> str:
    about = f"{names(Lease, 'leases')}, {names(LeasePolicy, 'lease_policies')}"
    more = f", {names(Allocation, 'item')}, offers.slug, node.address, preemptions.due_at, drained.at, {about}"
    return _SHOWN.format(columns=names(Allocation), machines=machines, more=more)


_AROUND = len(names(Allocation).split(", "))
_LEASE = _AROUND + 4
_POLICY = _LEASE + len(names(Lease).split(", "))


def _made(row: tuple[Any, ...]) -> Shown:
    offer, address, *ends = row[_AROUND:_LEASE]
    lease = made(Lease, row[_LEASE:_POLICY]) if row[_LEASE] is not None else None
    policy = made(LeasePolicy, row[_POLICY:]) if row[_POLICY] is not None else None
    return Shown(made(Allocation, row[:_AROUND]), Surroundings(offer, address or None, lease, policy, *ends))
