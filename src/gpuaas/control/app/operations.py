"""Looking at long changes and at what happened."""

from datetime import datetime

from gpuaas.control.app import access
from gpuaas.control.app.allocations import show
from gpuaas.control.store import events, identity, operations
from gpuaas.control.store.events import AuditEntry, Event
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import not_found
from gpuaas.model.identity import Caller, Project
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
