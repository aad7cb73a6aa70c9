"""Routes: operations, events, audit; and the two feeds that can be followed (server-sent events)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import Response, get
from litestar.response import Stream

from gpuaas.control.app import operations
from gpuaas.control.http import pages, views
from gpuaas.control.http.endpoint import Req, correlation_of, read, signed_in, store_of
from gpuaas.control.http.params import Cursor, LastEventId, Limit, Name, ObjectId, OptionalName, Sequence
from gpuaas.control.store.transaction import Tx
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.wire import api

PING_SECONDS = 15.0
BATCH = 200
NO_BUFFERING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


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


@get(
    "/operations/{operation:str}/follow",
    opt={"action": "operation.read"},
    media_type="text/event-stream",
    summary="Follow one long change until it ends",
)
async def follow_operation(request: Req, operation: Name) -> Stream:
    def look(tx: Tx) -> tuple[str, api.OperationView]:
        caller = signed_in(tx, request)
        return caller.user_id, views.operation(operations.show_operation(tx, caller, operation))

    user_id, first = await _in_thread(request, look)

    async def frames() -> AsyncIterator[bytes]:
        wakes: Wakes = request.app.state.wakes
        shown = None
        with wakes.on(f"operation:{first.id}", f"user:{user_id}") as woken:
            while True:
                _, current = await _in_thread(request, look)
                if current != shown:
                    yield _frame("operation", current)
                    shown = current
                if current.state != "running":
                    return
                if not await wait(woken, PING_SECONDS):
                    yield b": ping\n\n"

    return Stream(_until_refused(frames()), media_type="text/event-stream", headers=NO_BUFFERING)


@get(
    "/events/follow",
    opt={"action": "event.read"},
    media_type="text/event-stream",
    summary="Follow a project's events; Last-Event-ID resumes without a gap",
)
async def follow_events(
    request: Req,
    project: OptionalName = None,
    last_event_id: LastEventId = None,
    after: Sequence = None,
) -> Stream:
    def start(tx: Tx) -> tuple[str, str, int]:
        caller = signed_in(tx, request)
        found, newest = operations.followed_project(tx, caller, project)
        return caller.user_id, found.id, newest

    user_id, project_id, newest = await _in_thread(request, start)
    seen = int(last_event_id) if last_event_id is not None else (newest if after is None else after)

    async def frames() -> AsyncIterator[bytes]:
        nonlocal seen

        # The caller is looked at again for every batch: whoever lost access loses the feed.
        def look(tx: Tx) -> list[api.EventView]:
            found = operations.list_events(tx, signed_in(tx, request), project_id, None, seen, BATCH)
            return [views.event(item) for item in found]

        yield f"id: {seen}\n\n".encode()  # a stream that breaks before its first event resumes from here
        wakes: Wakes = request.app.state.wakes
        with wakes.on(f"project:{project_id}", f"user:{user_id}") as woken:
            while True:
                batch = await _in_thread(request, look)
                for item in batch:
                    yield _frame(item.type, item, item.seq)
                    seen = item.seq
                if not batch and not await wait(woken, PING_SECONDS):
                    yield b": ping\n\n"

    return Stream(_until_refused(frames()), media_type="text/event-stream", headers=NO_BUFFERING)


async def _until_refused(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Once the headers are out, an error can only end the stream; say why in its last frame."""
    yield b": hello\n\n"
    try:
        async for frame in frames:
            yield frame
    except Problem as problem:
        yield _frame("error", {"code": problem.code, "detail": problem.message})


async def _in_thread(request: Req, work: Any) -> Any:
    return await asyncio.to_thread(store_of(request).transact, work, correlation_id=correlation_of(request))


def _frame(event: str, data: Any, id: int | None = None) -> bytes:
    number = f"id: {id}\n" if id is not None else ""
    return f"{number}event: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


ROUTES: list[Any] = [
    list_operations,
    show_operation,
    follow_operation,
    list_events,
    follow_events,
    list_audit,
    verify_audit,
    list_platform_audit,
    verify_platform_audit,
]
