"""Launch: find a place for a group of allocations, claim it durably, tell the nodes.

place -> deliver -> (the node's steps) -> ready
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpuaas.control.operations import bodies, fitness, placing, quota
from gpuaas.control.operations.placing import Found
from gpuaas.control.store import allocations, capacity, claims, identity, leases, operations, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Project, SshKey
from gpuaas.model.node import Offer
from gpuaas.model.operation import LAUNCH, Operation, begin, done, fresh_phases
from gpuaas.model.placement import Plan, Seat, SlotView, Wanted
from gpuaas.model.reservation import stays_until

Started = list[tuple[Allocation, Operation]]
GENERATION = 1  # of the first spec


def wanted(offer: Offer, org_id: str, count: int) -> Wanted:
    return Wanted(
        org_id,
        offer.gpu_model,
        offer.gpu_count,
        offer.cpus,
        offer.memory_mib,
        offer.isolation,
        offer.realisations,
        count,
    )


def start(
    tx: Tx,
    found: Found,
    drafts: Sequence[dict[str, Any]],
    offer: Offer,
    project: Project,
    keys: Sequence[SshKey],
) -> Started:
    """Write the whole group where it was found to fit; where it was not, it stays queued."""
    if not found.fits:
        return [_queued(tx, draft) for draft in drafts]
    started = []
    for draft, seat in zip(drafts, found.plan.seats, strict=True):
        allocation = allocations.insert_allocation(tx, **draft, placed=_place(tx, found, seat))
        operation = operations.first(tx, allocation, LAUNCH, _placed_phases(tx, seat, None))
        claims.take(tx, allocation.id, [slot.id for slot in seat.slots])
        _write_spec(tx, allocation, offer, seat, keys, project)
        started.append((allocation, operation))
    _count(tx, found)
    return started


def asked(tx: Tx, group: Sequence[Allocation], offer: Offer) -> Wanted:
    """What a group that has waited needs."""
    first = group[0]
    length = leases.lease(tx, first.id).max_seconds
    until = stays_until(tx.now, length, first.preemptible, tx.preemption_grace)
    need = replace(wanted(offer, first.org_id, len(group)), group_id=first.group_id, free_at=until)
    return replace(need, unfit=fitness.unfit(tx, fitness.wanted_by(tx, first.id), offer))


def place(tx: Tx, group: Sequence[Allocation], offer: Offer) -> Plan:
    """The same for a group that has waited, locked."""
    first, need = group[0], asked(tx, group, offer)
    if over := quota.exceeded(tx, first.org_id, first.project_id, offer, len(group), free_at=need.free_at):
        return Plan((), tuple(reason for reason, _ in over))
    found = placing.find(tx, need)
    if not found.fits:
        return found.plan
    if quota.counts_more_there(offer, found.plan):
        seats, until = found.plan.seats, need.free_at
        over = quota.exceeded(tx, first.org_id, first.project_id, offer, len(group), free_at=until, seats=seats)
        if over:
            return Plan((), tuple(reason for reason, _ in over))
    project = identity.project(tx, group[0].project_id)
    assert project is not None
    for allocation, seat in zip(group, found.plan.seats, strict=True):
        placed = allocations.move(tx, allocation, "placed", **_place(tx, found, seat))
        operation = operations.open_(tx, placed.id, LAUNCH.facet)
        assert operation is not None
        operations.set_phases(tx, operation, _placed_phases(tx, seat, operation), generation=GENERATION)
        claims.take(tx, placed.id, [slot.id for slot in seat.slots])
        _write_spec(tx, placed, offer, seat, bodies.keys_of(tx, placed), project, waited=True)
    _count(tx, found)
    return found.plan


def _queued(tx: Tx, draft: dict[str, Any]) -> tuple[Allocation, Operation]:
    allocation = allocations.insert_allocation(tx, **draft)
    return allocation, operations.first(tx, allocation, LAUNCH, fresh_phases(LAUNCH, tx.now.timestamp()))


def _place(tx: Tx, found: Found, seat: Seat) -> dict[str, Any]:
    number = allocations.free_seat(tx, seat.node_id) if found.seat is None else found.seat
    return {"node_id": seat.node_id, "seat": number, "realisation": seat.realisation, "generation": GENERATION}


def _placed_phases(tx: Tx, seat: Seat, operation: Operation | None) -> list[dict[str, Any]]:
    now = tx.now.timestamp()
    phases = operation.phases if operation else fresh_phases(LAUNCH, now)
    return begin(done(phases, "place", now, _how(seat)), "deliver", now)


def _how(seat: Seat) -> str:
    """Which realisation was chosen, for everybody to see."""
    if seat.realisation == "baremetal":
        return "as baremetal: a whole node"
    return f"as {seat.realisation}: {len(seat.slots)} slot{'s' if len(seat.slots) != 1 else ''} of a node"


def _write_spec(
    tx: Tx, allocation: Allocation, offer: Offer, seat: Seat, keys: Iterable[SshKey], project: Project,
    waited: bool = False,
) -> None:  # fmt: skip
    body = bodies.build(allocation, offer, seat.slots, keys, project)
    if waited:  # somebody may have chosen runtimes meanwhile; what was just made has none yet
        fitness.settle(tx, allocation)
        body = bodies.with_runtimes(tx, allocation.id, body)
    specs.first(tx, seat.node_id, allocation.id, allocation.incarnation, GENERATION, body)


def _count(tx: Tx, found: Found) -> None:
    given: dict[str, list[SlotView]] = {}
    for seat in found.plan.seats:
        given.setdefault(seat.node_id, []).extend(seat.slots)
    for node in found.nodes:
        if node.id in given:
            capacity.taken(tx, node, given[node.id])
