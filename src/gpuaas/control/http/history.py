"""Routes: operations, events, audit."""

from typing import Any

from litestar import Response, get

from gpuaas.control.app import operations
from gpuaas.control.http import pages, views
from gpuaas.control.http.endpoint import Req, read
from gpuaas.control.http.params import Cursor, Limit, Name, ObjectId, OptionalName
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@get("/operations", opt={"action": "operation.read"}, sync_to_thread=True, summary="Long changes, newest first")
def list_operations(
    request: Req, allocation: OptionalName = None, limit: Limit = 50, cursor: Cursor = None
) -> Response[api.OperationPage]:
    after = pages.position(cursor)

    def work(tx: Tx, caller: Caller) -> api.OperationPage:
        items, more = pages.cut(operations.list_operations(tx, caller, allocation, after, limit + 1), limit)
        cursor = pages.encode(items[-1].created_at, items[-1].id) if more else None
        return api.OperationPage([views.operation(item) for item in items], cursor)

    return read(request, work)


@get("/operations/{operation:str}", opt={"action": "operation.read"}, sync_to_thread=True, summary="One long change")
def show_operation(request: Req, operation: Name) -> Response[api.OperationView]:
    return read(request, lambda tx, caller: views.operation(operations.show_operation(tx, caller, operation)))


@get("/events", opt={"action": "event.read"}, sync_to_thread=True, summary="What happened in a project, oldest first")
def list_events(
    request: Req,
    project: OptionalName = None,
    about: ObjectId = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[api.EventPage]:
    after = pages.number(cursor)

    def work(tx: Tx, caller: Caller) -> api.EventPage:
        items, more = pages.cut(operations.list_events(tx, caller, project, about, after, limit + 1), limit)
        return api.EventPage([views.event(item) for item in items], pages.encode(items[-1].seq) if more else None)

    return read(request, work)


@get("/audit", opt={"action": "audit.read"}, sync_to_thread=True, summary="The organisation's audit log, oldest first")
def list_audit(
    request: Req, org: OptionalName = None, limit: Limit = 100, cursor: Cursor = None
) -> Response[api.AuditPage]:
    after = pages.number(cursor)

    def work(tx: Tx, caller: Caller) -> api.AuditPage:
        items, more = pages.cut(operations.list_audit(tx, caller, org, after, limit + 1), limit)
        return api.AuditPage([views.audit(item) for item in items], pages.encode(items[-1].seq) if more else None)

    return read(request, work)


@get("/audit/verify", opt={"action": "audit.read"}, sync_to_thread=True, summary="Walk the audit chain")
def verify_audit(request: Req, org: OptionalName = None) -> Response[api.AuditVerdict]:
    return read(request, lambda tx, caller: _verdict(*operations.verify_audit(tx, caller, org)))


@get("/platform/audit", opt={"action": "platform.audit"}, sync_to_thread=True, summary="The platform's own audit log")
def list_platform_audit(request: Req, limit: Limit = 100, cursor: Cursor = None) -> Response[api.AuditPage]:
    after = pages.number(cursor)

    def work(tx: Tx, caller: Caller) -> api.AuditPage:
        items, more = pages.cut(operations.list_platform_audit(tx, caller, after, limit + 1), limit)
        return api.AuditPage([views.audit(item) for item in items], pages.encode(items[-1].seq) if more else None)

    return read(request, work)


@get("/platform/audit/verify", opt={"action": "platform.audit"}, sync_to_thread=True, summary="Walk the platform chain")
def verify_platform_audit(request: Req) -> Response[api.AuditVerdict]:
    return read(request, lambda tx, caller: _verdict(*operations.verify_platform_audit(tx, caller)))


def _verdict(org_id: str, entries: int, problem: str | None) -> api.AuditVerdict:
    return api.AuditVerdict(org_id, entries, problem is None, problem)


ROUTES: list[Any] = [
    list_operations,
    show_operation,
    list_events,
    list_audit,
    verify_audit,
    list_platform_audit,
    verify_platform_audit,
]
