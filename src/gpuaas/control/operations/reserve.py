"""A reservation from its start to its end: kept, opened, turned into a launch, or given up."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuaas.control.operations import booking, launch, preempt, quota
from gpuaas.control.operations.launch import Started
from gpuaas.control.store import allocations, bookings, identity, leases, offers, preemptions, reservations
from gpuaas.control.store.admission import admission
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Project, SshKey
from gpuaas.model.node import Offer
from gpuaas.model.placement import Plan, Reason
from gpuaas.model.reservation import UNUSED, Reservation


def step(tx: Tx, id: str) -> int:
    """One reservation, under its lock, as it is now. Whether anything changed."""
    seen = reservations.by_id(tx, id)
    if seen is None:
        return 0
    project, offer = identity.project(tx, seen.project_id), offers.offer(tx, seen.offer_id)
    assert project is not None
    assert offer is not None
    launches = seen.launch_name is not None and tx.now >= seen.starts_at
    # What a launch locks is locked before the reservation, as in a launch by hand.
    admitted = admission(tx, project.id, seen.owner_id, seen.offer_id) if launches else None
    reservation = reservations.by_id(tx, id, lock=True)
    if reservation is None or reservation.state != "booked":
        return 0
    if tx.now >= reservation.ends_at:
        return expire(tx, reservation, reservation.trouble or "its window is over")
    trouble = booking.repair(tx, reservation, offer)
    if trouble is None and tx.now >= reservation.starts_at and booking.take(tx, reservation, offer).fits:
        ready_at = _ready(tx, reservation)
        if admitted is not None:
            chosen = [key for key in admitted.keys if key.id in reservation.key_ids]
            trouble = _launch(tx, reservation, project, offer, chosen if admitted.project else None)
            if trouble is None:
                return 1
        if tx.now - ready_at >= UNUSED:
            return expire(tx, reservation, trouble or "nobody has used it")
    return _say(tx, reservation, trouble)


def convert(
    tx: Tx, reservation: Reservation, project: Project, offer: Offer, owner_id: str, name: str,
    chosen: Sequence[SshKey], ends_at: datetime, idle_seconds: int | None = None,
) -> tuple[Started, Plan]:  # fmt: skip
    """The reservation, locked, becomes a launch on the place that was kept for it; or why not."""
    org_id, count = reservation.org_id, reservation.count
    until = reservation.free_at
    over = quota.exceeded(tx, org_id, project.id, offer, count, free_at=until, besides=reservation.id)
    if over:
        return [], Plan((), tuple(reason for reason, _ in over))
    names = machine_names(name, count)
    if taken := allocations.name_taken(tx, project.id, names):
        return [], Plan((), (Reason("name_taken", f"the project has a machine called {taken!r}", 1),))
    found = booking.take(tx, reservation, offer)
    if not found.fits:
        return [], found.plan
    if quota.counts_more_there(offer, found.plan):
        where: dict[str, Any] = {"besides": reservation.id, "seats": found.plan.seats}
        over = quota.exceeded(tx, org_id, project.id, offer, count, free_at=until, **where)
        if over:
            return [], Plan((), tuple(reason for reason, _ in over))
    same: dict[str, Any] = {
        "org_id": org_id,
        "project_id": project.id,
        "offer_id": offer.id,
        "owner_id": owner_id,
        "group_id": tx.ids.new("gr"),
        "key_ids": [key.id for key in chosen],
    }
    drafts = [{"id": tx.ids.new("al"), "name": each, **same} for each in names]
    started = launch.start(tx, found, drafts, offer, project, chosen)
    for allocation, _ in started:
        seconds = max(int((ends_at - tx.now).total_seconds()), 1)
        leases.set_lease(tx, allocation.id, max_seconds=seconds, idle_seconds=idle_seconds, ends_at=ends_at)
    about = {"org_id": org_id, "project_id": project.id, "kind": "allocation", "id": drafts[0]["id"]}
    ids = [draft["id"] for draft in drafts]
    tx.audit("allocation.launch", **about, names=names, ids=ids, offer=offer.slug, reservation=reservation.name)
    end(tx, reservation, "use", group_id=same["group_id"])
    return started, found.plan


def machine_names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{n}" for n in range(count)]


def booked(tx: Tx, reservation: Reservation) -> None:
    window = {"starts_at": reservation.starts_at.isoformat(), "ends_at": reservation.ends_at.isoformat()}
    _emit(tx, "reservation.booked", reservation, **window)


def expire(tx: Tx, reservation: Reservation, reason: str) -> int:
    end(tx, reservation, "expire", reason=reason)
    about = {"org_id": reservation.org_id, "project_id": reservation.project_id, "kind": "reservation"}
    tx.audit("reservation.expire", **about, id=reservation.id, name=reservation.name, reason=reason)
    return 1


def end(tx: Tx, reservation: Reservation, event: str, *, group_id: str | None = None, **said: str) -> None:
    """Its slots are everybody's again, or its machines'."""
    state = reservations.end(tx, reservation, event, group_id)
    bookings.remove(tx, reservation.id, range(reservation.count))
    preempt.call_off(tx, preemptions.of(tx, reservation.id))
    _emit(tx, f"reservation.{state}", reservation, **said)


def _emit(tx: Tx, type: str, reservation: Reservation, **said: str) -> None:
    about = {"org_id": reservation.org_id, "project_id": reservation.project_id, "kind": "reservation"}
    tx.emit(type, **about, id=reservation.id, name=reservation.name, **said)


def _ready(tx: Tx, reservation: Reservation) -> datetime:
    if reservation.ready_at is not None:
        return reservation.ready_at
    reservations.set_(tx, reservation.id, ready_at=tx.now)
    _emit(tx, "reservation.ready", reservation, until=(tx.now + UNUSED).isoformat())
    return tx.now


def _launch(
    tx: Tx, reservation: Reservation, project: Project, offer: Offer, chosen: Sequence[SshKey] | None
) -> str | None:
    """As it was asked for when it was booked. Why not, if not."""
    assert reservation.launch_name is not None
    if chosen is None:
        return "who booked it is not in the project any more"
    if not chosen:
        return "who booked it has none of the SSH keys any more that were to get in"
    owner, name = reservation.owner_id, reservation.launch_name
    started, found = convert(tx, reservation, project, offer, owner, name, chosen, reservation.ends_at)
    return None if started else "; ".join(reason.message for reason in found.reasons)


def _say(tx: Tx, reservation: Reservation, trouble: str | None) -> int:
    """Its holder is told when it is at risk, and when it is not any more: not each time the reason changes a little."""
    if trouble == reservation.trouble:
        return 0
    reservations.set_(tx, reservation.id, trouble=trouble)
    if trouble is None:
        _emit(tx, "reservation.safe", reservation)
    elif reservation.trouble is None:
        _emit(tx, "reservation.at_risk", reservation, reason=trouble)
    return 1
