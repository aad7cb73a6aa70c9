"""What was used and what it comes to: derived from the ledger and the price books whenever somebody asks."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuaas.control.app import access
from gpuaas.control.store import identity, prices, usage
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, invalid, not_found
from gpuaas.model.identity import Caller
from gpuaas.model.period import month_of
from gpuaas.model.usage import MICROSECOND, Correction, Line, lines

LONGEST = timedelta(days=400)
Period = tuple[datetime, datetime]


def of_project(
    tx: Tx, caller: Caller, name: str, begin: datetime | None, end: datetime | None
) -> tuple[Period, list[Line]]:
    project = access.in_project(tx, caller, "usage.read", name)
    period = checked(tx, begin, end)
    return period, derived(tx, [project.id], *period)


def of_org(
    tx: Tx, caller: Caller, name: str, begin: datetime | None, end: datetime | None
) -> tuple[Period, list[Line]]:
    org = access.in_org(tx, caller, "org_usage.read", name)
    period = checked(tx, begin, end)
    return period, derived(tx, identity.project_ids(tx, org.id), *period)


def checked(tx: Tx, begin: datetime | None, end: datetime | None) -> Period:
    """The current month when nothing is said; from a time until now; or the month of a time, up to it."""
    if begin is None and end is None:
        return month_of(tx.now)
    end = end or tx.now
    begin = begin or month_of(end - MICROSECOND)[0]
    if begin >= end:
        raise invalid("The period ends before it begins.", "`to` must be later than `from`, and `from` in the past.")
    if end - begin > LONGEST:
        raise invalid(f"That is more than {LONGEST.days} days.", "Ask for a shorter period, several times.")
    return begin, end


def derived(tx: Tx, project_ids: Sequence[str], begin: datetime, end: datetime) -> list[Line]:
    ids = list(project_ids)
    return lines(
        usage.intervals(tx, ids, begin, end),
        usage.corrections(tx, ids, begin, end),
        prices.books(tx),
        begin,
        end,
        tx.now,
    )


def correct(
    tx: Tx, caller: Caller, usage_id: str, begin: datetime | None, end: datetime | None, reason: str
) -> Correction:
    """Time that is not charged after all. A new entry: what was counted stays on record."""
    access.on_platform(tx, caller, "usage.correct")
    interval = usage.interval(tx, usage_id, lock=True)
    if interval is None:
        raise not_found("usage record", usage_id)
    if interval.ended_at is None:
        raise conflict("still_open", "This is still being counted.", "Correct it when the machine has been released.")
    first, last = begin or interval.started_at, end or interval.ended_at
    if not interval.started_at <= first < last <= interval.ended_at:
        raise invalid(
            "That is not a part of what was counted.",
            f"It was counted from {interval.started_at.isoformat()} to {interval.ended_at.isoformat()}.",
        )
    for other in usage.corrections_of(tx, interval.id):
        if other.started_at < last and first < other.ended_at:
            raise conflict("corrected_before", f"{other.id} has corrected a part of that already: {other.reason}")
    made = usage.insert_correction(tx, interval, first, last, reason)
    about = {"org_id": interval.org_id, "kind": "usage", "id": interval.id}
    said = {"correction": made.id, "from": first.isoformat(), "to": last.isoformat(), "reason": reason}
    # In the tenant's chain, but not of a project: who asks again sees the platform, and no project.
    tx.audit("usage.correct", **about, project=interval.project_id, **said)
    tx.emit("usage.corrected", **about, project_id=interval.project_id, **said)
    return made
