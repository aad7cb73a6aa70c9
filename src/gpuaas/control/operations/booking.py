"""Where a reservation has its place: found, kept on other nodes when one fails, taken when its time has come.

A slot is booked under its node's lock, as it is claimed. Until then others may use it who are certain to be gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuaas.control.operations import launch, preempt
from gpuaas.control.operations.placing import Found
from gpuaas.control.placement.filters import (
    being_drained,
    not_approved,
    not_connected,
    not_healthy,
    other_tenants_pool,
    reserved,
    slot_drained,
)
from gpuaas.control.placement.plan import plan
from gpuaas.control.placement.window import at, nearest
from gpuaas.control.store import bookings, capacity, preemptions, slots
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Offer
from gpuaas.model.placement import NodeView, Plan, Reason, Seat, SlotView, Wanted
from gpuaas.model.reservation import CLEAN, HORIZON, TAIL, Booking, Reservation, Stay, gone_by

GivenUp = tuple[str, frozenset[str]]  # a reservation, and slots that it does not count on any more
NOTHING: GivenUp = ("", frozenset())
TRIES = 3  # somebody was faster
LEAD = timedelta(minutes=1)  # a sweep may be late
BUSY = Plan((), (Reason("busy", "others were faster; try again", 1),))


def wanted(offer: Offer, org_id: str, count: int, starts_at: datetime, ends_at: datetime) -> Wanted:
    return replace(launch.wanted(offer, org_id, count), starts_at=starts_at, free_at=ends_at + TAIL)


def find(tx: Tx, asked: Wanted, given_up: GivenUp = NOTHING) -> Found:
    """Its place in its window, the nodes locked; or why there is none."""
    for _ in range(TRIES):
        first = plan(_then(tx, asked, given_up), asked)
        if not first.fits:
            return Found(first)
        node_ids = sorted({seat.node_id for seat in first.seats})
        take_back = tx.attempt()
        capacity.lock(tx, node_ids)
        nodes = _then(tx, asked, given_up, node_ids)
        again = plan(nodes, asked)
        if again.fits:
            return Found(again, tuple(nodes))
        take_back()
    return Found(BUSY)


def next_window(tx: Tx, asked: Wanted) -> datetime | None:
    return nearest(slots.snapshot(tx), asked, _gone_by(tx, bookings.stays(tx)), tx.now + HORIZON)


def keep(tx: Tx, reservation: Reservation, seats: Mapping[int, Seat]) -> None:
    """The caller has locked the nodes."""
    for number, seat in seats.items():
        for slot in seat.slots:
            where = (reservation.id, slot.id, seat.node_id, number, seat.realisation)
            bookings.insert(tx, Booking(*where, reservation.starts_at, reservation.free_at))


def repair(tx: Tx, reservation: Reservation, offer: Offer) -> str | None:
    """Whoever is in the way and may be asked is asked; a place that would not be there is replaced. Why that is
    impossible, if it is."""
    near = tx.now + tx.preemption_grace + CLEAN + LEAD >= reservation.starts_at
    if near:
        _ask(tx, reservation)
    why = None
    if shaky := _shaky(tx, reservation, offer):
        asked = wanted(offer, reservation.org_id, len(shaky), _from(tx, reservation), reservation.ends_at)
        mine = bookings.of(tx, reservation.id)
        given_up = reservation.id, frozenset(booking.slot_id for booking in mine if booking.seat in shaky)
        found = find(tx, asked, given_up)
        seats = found.plan.seats or (_made_room(tx, reservation, asked, given_up) if near else ())
        if seats:
            bookings.remove(tx, reservation.id, shaky)
            keep(tx, reservation, dict(zip(shaky, seats, strict=True)))
        else:
            why = "; ".join(f"{reason.message} ({reason.count})" for reason in found.plan.reasons)
    _leave_alone(tx, reservation)
    return why


def take(tx: Tx, reservation: Reservation, offer: Offer) -> Found:
    """Its place, if all of it is free now, locked."""
    mine = bookings.of(tx, reservation.id)
    node_ids = sorted({booking.node_id for booking in mine})
    capacity.lock(tx, node_ids)
    nodes = {node.id: node for node in slots.snapshot(tx, node_ids)}
    asked, seats = launch.wanted(offer, reservation.org_id, 1), []
    for number in range(reservation.count):
        seat = _seat(nodes, [booking for booking in mine if booking.seat == number], asked)
        if seat is not None and all(not slot.claimed for slot in seat.slots):
            seats.append(seat)
    if len(seats) < reservation.count:
        why = Reason("reserved_not_free", "a reserved place is not free yet", reservation.count - len(seats))
        return Found(Plan((), (why,)))
    return Found(Plan(tuple(seats)), tuple(nodes.values()))


def _then(tx: Tx, asked: Wanted, given_up: GivenUp = NOTHING, node_ids: Sequence[str] | None = None) -> list[NodeView]:
    assert asked.starts_at is not None
    nodes = [_without(node, given_up) for node in slots.snapshot(tx, node_ids)]
    return at(nodes, _gone_by(tx, bookings.stays(tx, node_ids)), asked.starts_at)


def _without(node: NodeView, given_up: GivenUp) -> NodeView:
    id, slot_ids = given_up
    if not slot_ids:
        return node
    return replace(
        node,
        slots=tuple(
            replace(slot, kept=tuple(kept for kept in slot.kept if kept.reservation_id != id))
            if slot.id in slot_ids
            else slot
            for slot in node.slots
        ),
    )


def _gone_by(tx: Tx, stays: Sequence[Stay]) -> dict[str, datetime]:
    known = {stay.slot_id: gone_by(stay, tx.now, tx.preemption_grace) for stay in stays}
    return {slot_id: by for slot_id, by in known.items() if by is not None}


def _from(tx: Tx, reservation: Reservation) -> datetime:
    return max(reservation.starts_at, tx.now)


def _ask(tx: Tx, reservation: Reservation) -> None:
    """Preemptible machines on its slots that would not be gone by themselves."""
    mine = bookings.of(tx, reservation.id)
    here = {booking.slot_id for booking in mine}
    for stay in bookings.stays(tx, sorted({booking.node_id for booking in mine})):
        if stay.slot_id in here and stay.preemptible and stay.claim == "held" and stay.wanted_by is None:
            by = gone_by(stay, tx.now, None)
            if stay.state in preempt.MAY_GO and (by is None or by > reservation.starts_at):
                preempt.tell(tx, stay.allocation_id, reservation.id)


def _shaky(tx: Tx, reservation: Reservation, offer: Offer) -> list[int]:
    """The machines whose place would not be there."""
    mine = bookings.of(tx, reservation.id)
    node_ids = sorted({booking.node_id for booking in mine})
    nodes = {node.id: node for node in slots.snapshot(tx, node_ids)}
    stays = {stay.slot_id: stay for stay in bookings.stays(tx, node_ids)}
    asked = launch.wanted(offer, reservation.org_id, 1)
    found = []
    for number in range(reservation.count):
        seat = _seat(nodes, [booking for booking in mine if booking.seat == number], asked)
        if seat is None or not all(_will_be_free(tx, reservation, stays.get(slot.id)) for slot in seat.slots):
            found.append(number)
    return found


def _seat(nodes: Mapping[str, NodeView], mine: Sequence[Booking], asked: Wanted) -> Seat | None:
    """None where the node or one of the slots is not in service, or not open to this tenant any more."""
    if not mine or mine[0].node_id not in nodes:
        return None
    node = nodes[mine[0].node_id]
    if any(why(node, asked) for why in (other_tenants_pool, not_connected, not_healthy, being_drained)):
        return None
    ids = {booking.slot_id for booking in mine}
    found = tuple(slot for slot in node.slots if slot.id in ids)
    if len(found) < len(ids) or any(not_approved(slot, asked) or slot_drained(slot, asked) for slot in found):
        return None
    if (mine[0].realisation == "baremetal" or asked.isolation == "dedicated_node") and len(found) < len(node.slots):
        return None  # it has a slot more since, which may be somebody else's
    return Seat(node.id, found, mine[0].realisation, node.name)


def _will_be_free(tx: Tx, reservation: Reservation, stay: Stay | None) -> bool:
    if stay is None or stay.claim == "scrubbing" or stay.wanted_by == reservation.id:
        return True
    by = gone_by(stay, tx.now, tx.preemption_grace)
    return by is not None and by <= _from(tx, reservation)


def _made_room(tx: Tx, reservation: Reservation, asked: Wanted, given_up: GivenUp) -> tuple[Seat, ...]:
    """Where it has its place when others have given way, who are told."""
    found = preempt.options(tx, reservation.id, _then(tx, asked, given_up), asked)
    if found is None:
        return ()
    node_ids = sorted({seat.node_id for seat in found.seats})
    capacity.lock(tx, node_ids)
    now = {slot.id: slot for node in _then(tx, asked, given_up, node_ids) for slot in node.slots}
    if any(_lost(now.get(slot.id), asked) for seat in found.seats for slot in seat.slots):
        return ()
    for machine in found.machines:
        if not machine.asked:
            preempt.tell(tx, machine.allocation_id, reservation.id)
    return found.seats


def _lost(slot: SlotView | None, asked: Wanted) -> bool:
    return slot is None or reserved(slot, asked) is not None or not_approved(slot, asked) is not None


def _leave_alone(tx: Tx, reservation: Reservation) -> None:
    """Who was told to give way and is on none of its slots any more."""
    here = {booking.slot_id for booking in bookings.of(tx, reservation.id)}
    needed = {stay.allocation_id for stay in bookings.stays(tx) if stay.slot_id in here}
    told = preemptions.of(tx, reservation.id)
    preempt.call_off(tx, [item for item in told if item.allocation_id not in needed])
