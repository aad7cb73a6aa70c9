"""Looking at long changes and at what happened."""

from datetime import datetime

from gpuaas.control.app import access
from gpuaas.control.app.allocations import show
from gpuaas.control.store import events, identity, operations
from gpuaas.control.store.events import AuditEntry, Event
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, not_found
from gpuaas.model.identity import Caller, Org, Project
from gpuaas.model.operation import Operation


def list_operations(
    tx: Tx, caller: Caller, allocation: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[Operation]:
    visible = access.projects(tx, caller, "operation.read")
    allocation_id = show(tx, caller, allocation).id if allocation else None
    return operations.page(tx, list(visible), allocation_id, after, limit)


def show_operation(tx: Tx, caller: Caller, operation_id: str) -> Operation:
    visible = access.projects(tx, caller, "operation.read")
    operation = operations.by_id(tx, operation_id)
    if operation is None or operation.project_id not in visible:
        raise not_found("operation", operation_id)
    return operation


def list_events(
    tx: Tx, caller: Caller, project_name: str | None, object_id: str | None, after: int, limit: int
) -> list[Event]:
    project = access.in_project(tx, caller, "event.read", project_name)
    return events.events(tx, project.id, after, limit, object_id)


def followed_project(tx: Tx, caller: Caller, project_name: str | None) -> tuple[Project, int]:
    """The project whose feed is followed, and the newest number in it."""
    project = access.in_project(tx, caller, "event.read", project_name)
    return project, events.last_seq(tx, project.id)


def in_this_feed(seen: int, newest: int) -> None:
    """A position that lies ahead was given by a database that this one is an older copy of."""
    if seen > newest:
        raise conflict(
            "feed_is_shorter",
            f"The feed ends at event {newest}, and you have seen {seen}: the database was restored from a backup.",
            "Start again without Last-Event-ID, and look at what is there now.",
        )


def followed_org(tx: Tx, caller: Caller, org_name: str) -> tuple[Org, dict[str, int]]:
    """The org whose feeds are followed, and the newest number in each."""
    org = access.in_org(tx, caller, "org_event.read", org_name)
    return org, events.last_seqs(tx, org.id)


def list_org_events(tx: Tx, caller: Caller, org_name: str, seen: dict[str, int], limit: int) -> list[Event]:
    """What comes next in each project, one project after the other."""
    org = access.in_org(tx, caller, "org_event.read", org_name)
    found: list[Event] = []
    for project_id, newest in sorted(events.last_seqs(tx, org.id).items()):
        if newest > seen.get(project_id, 0) and len(found) < limit:
            found += events.events(tx, project_id, seen.get(project_id, 0), limit - len(found))
    return found


def list_audit(tx: Tx, caller: Caller, org_name: str | None, after: int, limit: int) -> list[AuditEntry]:
    org = access.in_org(tx, caller, "audit.read", org_name)
    return events.audit(tx, org.id, after, limit)


def verify_audit(tx: Tx, caller: Caller, org_name: str | None) -> tuple[str, int, str | None]:
    org = access.in_org(tx, caller, "audit.read", org_name)
    return org.id, *events.verify_audit(tx, org.id)


def list_platform_audit(tx: Tx, caller: Caller, after: int, limit: int) -> list[AuditEntry]:
    access.on_platform(tx, caller, "platform.audit")
    return events.audit(tx, identity.platform_org_id(tx), after, limit)


def verify_platform_audit(tx: Tx, caller: Caller) -> tuple[str, int, str | None]:
    access.on_platform(tx, caller, "platform.audit")
    org_id = identity.platform_org_id(tx)
    return org_id, *events.verify_audit(tx, org_id)
