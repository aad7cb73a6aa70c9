"""Launch: find a place for a group of allocations, claim it durably, tell the nodes.

place -> deliver -> (the node's steps) -> ready
"""

from collections.abc import Sequence

from gpuaas.control.operations import bodies
from gpuaas.control.placement.plan import plan
from gpuaas.control.store import allocations, claims, nodes, operations, slots, specs
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.node import Offer
from gpuaas.model.operation import LAUNCH, begin, done
from gpuaas.model.placement import Plan, Reason, Seat, Wanted

# A lost race is planned again on a fresh snapshot. Each one was won by somebody else, so that they end; as many may
# happen at once as the store has connections.
TRIES = 64

CONTENDED = Plan((), (Reason("contended", "others took the free slots in the same moment", 1),))


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


def start(tx: Tx, group: Sequence[Allocation], offer: Offer) -> Plan:
    """Open the operations and place the whole group if it fits; otherwise it stays queued."""
    for allocation in group:
        operations.start(tx, allocation, LAUNCH)
    return place(tx, group, offer)


def place(tx: Tx, group: Sequence[Allocation], offer: Offer) -> Plan:
    for _ in range(TRIES):
        found = plan(slots.snapshot(tx), wanted(offer, group[0].org_id, len(group)))
        if not found.fits:
            return found
        attempt = tx.savepoint()
        if _claim(tx, group, found.seats, offer):
            attempt.commit()
            return found
        attempt.rollback()
    return CONTENDED


def _claim(tx: Tx, group: Sequence[Allocation], seats: Sequence[Seat], offer: Offer) -> bool:
    pairs = list(zip(group, seats, strict=True))
    if not claims.take(tx, [(slot.id, allocation.id) for allocation, seat in pairs for slot in seat.slots]):
        return False
    for node_id in sorted({seat.node_id for seat in seats}):
        node = nodes.node(tx, node_id, lock=True)
        if node is None or node.state != "ready":
            return False  # it fell silent after the snapshot was taken
    return all(_deliver(tx, allocation, seat, offer) for allocation, seat in pairs)


def _deliver(tx: Tx, allocation: Allocation, seat: Seat, offer: Offer) -> bool:
    number = allocations.free_seat(tx, seat.node_id)
    if number is None:
        return False
    generation = allocation.generation + 1
    placed = allocations.move(
        tx,
        allocation,
        "placed",
        node_id=seat.node_id,
        seat=number,
        realisation=seat.realisation,
        generation=generation,
    )
    body = bodies.build(tx, placed, offer, [slot.id for slot in seat.slots])
    specs.write(tx, seat.node_id, placed.id, placed.incarnation, generation, body)
    operation = operations.open_(tx, placed.id, LAUNCH.facet)
    assert operation is not None
    now = tx.now.timestamp()
    phases = begin(done(operation.phases, "place", now, f"as {seat.realisation}"), "deliver", now)
    operations.set_phases(tx, operation, phases, generation=generation)
    return True
