"""Reservations: book, list, show, cancel. Turned into a launch by operations/reserve.py."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from gpuaas.control.app import access, lease_terms
from gpuaas.control.app.allocations import hide_nodes, launch_keys
from gpuaas.control.app.offers import usable
from gpuaas.control.operations import booking, quota, reserve
from gpuaas.control.store import reservations
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, Taken, conflict, invalid, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.placement import Plan, Reason
from gpuaas.model.reservation import HORIZON, LONGEST, SHORTEST, TAIL, Reservation

LATE = timedelta(minutes=1)  # what was meant as now is not the past


def book(
    tx: Tx, caller: Caller, name: str, offer_name: str, project_name: str | None, count: int,
    starts_at: datetime, ends_at: datetime, launch_name: str | None, key_names: list[str] | None,
) -> Reservation:  # fmt: skip
    project, admitted = access.admitted(tx, caller, "reservation.write", project_name, offer_name)
    offer = usable(admitted.offer, offer_name)
    starts_at = max(starts_at, tx.now) if starts_at > tx.now - LATE else starts_at
    _possible(tx, starts_at, ends_at)
    lease_terms.length(admitted.policy, int((ends_at - starts_at).total_seconds()))
    chosen = launch_keys(admitted.keys, key_names) if launch_name is not None else []
    exceeded = partial(
        quota.exceeded,
        *(tx, project.org_id, project.id, offer, count, admitted.quotas),
        starts_at=starts_at,
        free_at=ends_at + TAIL,
    )
    if over := exceeded():
        raise _over_quota(over)
    asked = booking.wanted(offer, project.org_id, count, starts_at, ends_at)
    found = booking.find(tx, asked)
    if not found.fits:
        raise _no_room(hide_nodes(caller, found.plan), booking.next_window(tx, asked), ends_at - starts_at)
    if quota.counts_more_there(offer, found.plan) and (over := exceeded(seats=found.plan.seats)):
        raise _over_quota(over)
    try:
        made = reservations.insert(
            tx, org_id=project.org_id, project_id=project.id, name=name, offer_id=offer.id, count=count,
            owner_id=caller.user_id, starts_at=starts_at, ends_at=ends_at, launch_name=launch_name,
            key_ids=[key.id for key in chosen],
        )  # fmt: skip
    except Taken as error:
        raise conflict(
            "name_taken", f"The project has a reservation {name!r}.", "Choose another name, or cancel that one first."
        ) from error
    booking.keep(tx, made, dict(enumerate(found.plan.seats)))
    said = {"starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat()}
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "reservation"}
    tx.audit("reservation.book", **about, id=made.id, name=name, offer=offer.slug, count=count, **said)
    reserve.booked(tx, made)
    return made


def _over_quota(over: Sequence[tuple[Reason, bool]]) -> Problem:
    return conflict(
        "quota_exceeded",
        f"Over quota in that time: {'; '.join(reason.message for reason, _ in over)}.",
        "Book less or another time, or ask for more: `gpuaas quota ls`.",
    )


def list_reservations(
    tx: Tx, caller: Caller, project_name: str | None, booked: bool, after: tuple[datetime, str] | None, limit: int
) -> list[Reservation]:
    if project_name is None:
        ids = list(access.projects(tx, caller, "reservation.read"))
    else:
        ids = [access.in_project(tx, caller, "reservation.read", project_name).id]
    return reservations.page(tx, ids, booked=booked, after=after, limit=limit)


def show(tx: Tx, caller: Caller, name: str) -> Reservation:
    return _find(tx, caller, "reservation.read", name)


def cancel(tx: Tx, caller: Caller, name: str, confirm: str) -> Reservation:
    seen = _find(tx, caller, "reservation.write", name)
    if confirm != seen.name:
        message = f"To cancel {seen.name!r}, `confirm` must repeat its name."
        raise invalid(message, f"Send confirm: {seen.name!r}.", code="not_confirmed")
    reservation = reservations.by_id(tx, seen.id, lock=True)
    assert reservation is not None
    if reservation.state != "booked":
        message = f"The reservation {reservation.name!r} is {reservation.state}."
        raise conflict("not_in_this_state", message, "There is nothing to cancel any more.")
    reserve.end(tx, reservation, "cancel")
    about = {"org_id": reservation.org_id, "project_id": reservation.project_id, "kind": "reservation"}
    tx.audit("reservation.cancel", **about, id=reservation.id, name=reservation.name)
    return replace(reservation, state="cancelled", ended_at=tx.now)


def _find(tx: Tx, caller: Caller, action: str, name: str) -> Reservation:
    visible = access.projects(tx, caller, action)
    found = reservations.find(tx, name, list(visible))
    if not found:
        raise not_found("reservation", name)
    if len(found) > 1:
        listed = ", ".join(f"{item.id} in {visible[item.project_id][0].slug}" for item in found)
        raise conflict("ambiguous", f"{name!r} exists in several projects.", f"Use the id: {listed}")
    access.on_object(tx, action, visible[found[0].project_id][1])
    return found[0]


def _possible(tx: Tx, starts_at: datetime, ends_at: datetime) -> None:
    if starts_at < tx.now:
        raise invalid("It would begin in the past.", "Book a time that is still to come.", code="bad_window")
    if not SHORTEST <= ends_at - starts_at <= LONGEST:
        raise invalid("A window has at least 10 minutes and at most 30 days.", "Choose other times.", code="bad_window")
    if starts_at > tx.now + HORIZON:
        raise invalid("It would begin in more than 90 days.", "Book it later.", code="bad_window")


def _no_room(found: Plan, next_at: datetime | None, length: timedelta) -> Problem:
    why = "; ".join(f"{reason.message} ({reason.count})" for reason in found.reasons)
    later = "Try another time, fewer machines or another offer."
    window = None
    if next_at is not None:
        window = {"starts_at": next_at.isoformat(), "ends_at": (next_at + length).isoformat()}
        later = f"The next window of that length begins at {next_at:%Y-%m-%d %H:%M} UTC, as far as is known."
    reasons = [reason.__dict__ for reason in found.reasons]
    return conflict("no_capacity", f"There is no room in that window: {why}.", later, reasons=reasons, nearest=window)
