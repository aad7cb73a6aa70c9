"""Break-glass: an operator says why and for how long, and may then act on a tenant's objects. The tenant is told."""

from datetime import datetime, timedelta
from typing import Any

from gpuaas.control.app import access
from gpuaas.control.store import break_glass, identity
from gpuaas.control.store.transaction import PLATFORM_ORG, SYSTEM, Tx
from gpuaas.kit.errors import Taken, conflict, not_found
from gpuaas.model.break_glass import BreakGlass
from gpuaas.model.identity import Caller

Shown = tuple[BreakGlass, str, str]  # with the slug of the org and the operator's address


def open_(tx: Tx, caller: Caller, org_name: str, reason: str, duration_seconds: int) -> Shown:
    """A newer one replaces the one that is open."""
    access.on_platform(tx, caller, "break_glass.open")
    org = identity.org(tx, org_name)
    if org is None or org.slug == PLATFORM_ORG:
        raise not_found("organisation", org_name)
    earlier = break_glass.unended(tx, caller.user_id, org.id)
    if earlier is not None:
        break_glass.end(tx, earlier, caller.user_id)
    try:
        entry = break_glass.insert_entry(
            tx, org.id, caller.user_id, reason, tx.now + timedelta(seconds=duration_seconds)
        )
    except Taken as error:
        raise conflict("open_already", "You opened one in the same moment.", "List those that are open.") from error
    until = entry.expires_at.isoformat()
    replaced = {"replaces": earlier.id} if earlier else {}
    _tell(tx, "break_glass.open", entry, reason=reason, expires_at=until, operator=caller.email, **replaced)
    return entry, org.slug, caller.email


def list_all(tx: Tx, caller: Caller, after: tuple[datetime, str] | None, limit: int) -> list[Shown]:
    access.on_platform(tx, caller, "break_glass.read")
    return break_glass.page(tx, None, after, limit)


def list_for_tenant(
    tx: Tx, caller: Caller, org_name: str, after: tuple[datetime, str] | None, limit: int
) -> list[Shown]:
    return break_glass.page(tx, access.in_org(tx, caller, "org.read", org_name).id, after, limit)


def end(tx: Tx, caller: Caller, id: str) -> BreakGlass:
    """Any operator may: closing is always safe. Asking twice is not an error."""
    access.on_platform(tx, caller, "break_glass.open")
    return _end(tx, caller, break_glass.by_id(tx, id), id)


def end_for_tenant(tx: Tx, caller: Caller, org_name: str, id: str) -> BreakGlass:
    org = access.in_org(tx, caller, "org.break_glass", org_name)
    entry = break_glass.by_id(tx, id)
    return _end(tx, caller, entry if entry and entry.org_id == org.id else None, id)


def expire(tx: Tx) -> int:
    """Their time is over already; this says so to the tenant and cuts off what is open."""
    overdue = [entry for entry in break_glass.overdue(tx) if break_glass.end(tx, entry, SYSTEM)]
    for entry in overdue:
        _tell(tx, "break_glass.expire", entry)
    return len(overdue)


def _end(tx: Tx, caller: Caller, entry: BreakGlass | None, id: str) -> BreakGlass:
    if entry is None:
        raise not_found("break-glass", id)
    break_glass.end(tx, entry, caller.user_id)
    _tell(tx, "break_glass.end", entry)
    found = break_glass.by_id(tx, id)
    assert found is not None
    return found


def _tell(tx: Tx, action: str, entry: BreakGlass, **data: Any) -> None:
    """In the tenant's chain, and in the feed of every project that it reaches."""
    tx.audit(action, org_id=entry.org_id, kind="break_glass", id=entry.id, **data)
    for project in identity.projects_of(tx, entry.org_id):
        tx.emit(action, org_id=entry.org_id, project_id=project.id, kind="break_glass", id=entry.id, **data)
