"""Routes: the feeds that can be followed (server-sent events): one operation, a project, an organisation."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import get
from litestar.response import Stream

from gpuaas.control.app import operations
from gpuaas.control.http import positions, views
from gpuaas.control.http.endpoint import Req, correlation_of, signed_in, store_of
from gpuaas.control.http.params import LastEventId, Name, OptionalName, OrgEventId, Sequence
from gpuaas.control.http.positions import Position
from gpuaas.control.store.transaction import Tx
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.kit.errors import Problem
from gpuaas.wire import api

PING_SECONDS = 15.0
BATCH = 200
NO_BUFFERING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


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
    operations.in_this_feed(seen, newest)

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


@get(
    "/orgs/{org:str}/events/follow",
    opt={"action": "org_event.read"},
    media_type="text/event-stream",
    summary="Follow the events of every project of an organisation; Last-Event-ID resumes without a gap",
)
async def follow_org_events(request: Req, org: Name, last_event_id: OrgEventId = None) -> Stream:
    """In order within a project. Between projects there is no order: the position is one number per project."""

    def start(tx: Tx) -> tuple[str, str, Position]:
        caller = signed_in(tx, request)
        found, newest = operations.followed_org(tx, caller, org)
        return caller.user_id, found.id, newest

    user_id, org_id, newest = await _in_thread(request, start)
    seen = newest if last_event_id is None else positions.decoded(last_event_id)
    for project_id, seq in seen.items():
        operations.in_this_feed(seq, newest.get(project_id, 0))

    async def frames() -> AsyncIterator[bytes]:
        def look(tx: Tx) -> list[api.EventView]:
            found = operations.list_org_events(tx, signed_in(tx, request), org_id, seen, BATCH)
            return [views.event(item) for item in found]

        yield f"id: {positions.encoded(seen)}\n\n".encode()
        wakes: Wakes = request.app.state.wakes
        with wakes.on(f"org:{org_id}", f"user:{user_id}") as woken:
            while True:
                batch = await _in_thread(request, look)
                for item in batch:
                    seen[item.project_id] = item.seq
                    yield _frame(item.type, item, positions.encoded(seen))
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


def _frame(event: str, data: Any, id: int | str | None = None) -> bytes:
    number = f"id: {id}\n" if id is not None else ""
    return f"{number}event: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


ROUTES: list[Any] = [follow_operation, follow_events, follow_org_events]
