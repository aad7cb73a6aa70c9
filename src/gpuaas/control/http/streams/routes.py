"""Routes: a user's stream to a machine, and the dial-back of the node that has the machine."""

import asyncio
import logging
from typing import Any

from litestar import websocket

from gpuaas.control.app import streams
from gpuaas.control.http.endpoint import bearer, correlation_of, signed_in, store_of
from gpuaas.control.http.params import Name
from gpuaas.control.http.problems import respond
from gpuaas.control.http.streams.pipe import GONE, Socket, hang_up, pipe
from gpuaas.control.http.streams.room import Room
from gpuaas.control.http.streams.tickets import Tickets
from gpuaas.control.store.transaction import Tx
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.kit.log import bound
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.wire.node import Dial
from gpuaas.wire.streams import ACCESS_LOST, NODE_SILENT, TICKET_SECONDS, Close, close

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 15.0


class Streams:
    """What the two ends share in this replica."""

    def __init__(self, advertise_url: str) -> None:
        self.advertise_url = advertise_url
        self.tickets: Tickets[Socket] = Tickets(SystemClock())
        self.room = Room()


@websocket("/allocations/{allocation:str}/ssh", opt={"action": streams.ACTION})
async def user_end(socket: Socket, allocation: Name) -> None:
    def work(tx: Tx) -> tuple[Caller, Allocation, str]:
        caller = signed_in(tx, socket)
        return caller, *streams.connect(tx, caller, allocation)

    shared: Streams = socket.app.state.streams
    try:
        caller, found, node_id = await _transact(socket, work)
        with shared.room.taken(caller.user_id), bound(org_id=found.org_id, allocation_id=found.id, node_id=node_id):
            await socket.accept()
            log.info("stream wanted", extra={"fields": {"actor": caller.user_id}})
            told = await _joined(socket, shared, caller, found, node_id)
            log.info("stream over: %s", told.reason or "done", extra={"fields": {"actor": caller.user_id}})
    except Problem as problem:
        await _refuse(socket, problem)


@websocket("/streams", opt={"action": "node.stream"})
async def node_end(socket: Socket, node: Name, allocation: Name) -> None:
    """The ticket is the proof; node and allocation only have to be those that it was made for."""
    shared: Streams = socket.app.state.streams
    meeting = shared.tickets.redeem(bearer(socket.scope), node, allocation)
    if meeting is None:
        await _refuse(socket, Problem("stream_refused", 403, "The ticket is unknown, used or expired."))
        return
    await socket.accept()
    if not meeting.came.done():
        meeting.came.set_result(socket)
    await meeting.over.wait()


async def _joined(user: Socket, shared: Streams, caller: Caller, found: Allocation, node_id: str) -> Close:
    with shared.tickets.issue(node_id, found.id) as meeting:
        source = user.client.host if user.client else ""
        dial = Dial(found.id, meeting.ticket, shared.advertise_url, source)
        try:
            await _transact(user, lambda tx: streams.ask(tx, node_id, dial))
            async with asyncio.timeout(TICKET_SECONDS):
                node = await meeting.came
            told = await pipe(user, node, _access_lost(user, caller.user_id, found))
            await hang_up(node, told)
        except TimeoutError:
            told = close(NODE_SILENT, f"The machine's node did not answer within {TICKET_SECONDS:.0f} s; try again.")
        except Problem as problem:
            told = close(NODE_SILENT, problem.message)
        await hang_up(user, told)
        return told


async def _access_lost(user: Socket, user_id: str, found: Allocation) -> Close:
    """Ends when the token, the person or the role is gone: at once where somebody says so, else at the next look."""
    wakes: Wakes = user.app.state.wakes
    with wakes.on(f"user:{user_id}") as woken:
        while True:
            try:
                await _transact(user, lambda tx: streams.still(tx, signed_in(tx, user), found))
            except Problem as problem:
                # A database that is away takes no rights away; a direct connection would live on too.
                if problem.status < 500:
                    return close(ACCESS_LOST, problem.message)
            await wait(woken, LOOK_AGAIN_SECONDS)


async def _transact(socket: Socket, work: Any) -> Any:
    return await asyncio.to_thread(store_of(socket).transact, work, correlation_id=correlation_of(socket))


async def _refuse(socket: Socket, problem: Problem) -> None:
    """Before the upgrade, so that the answer is an HTTP problem like every other one."""
    made = respond(socket, problem)
    correlation = ("X-Correlation-ID", correlation_of(socket))
    headers = [("Content-Type", str(made.media_type)), correlation, *made.headers.items()]
    start = {
        "type": "websocket.http.response.start",
        "status": problem.status,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }
    body = {"type": "websocket.http.response.body", "body": made.content}
    try:
        for message in (start, body):
            await socket.send(message)  # type: ignore[arg-type]  # of an extension that Litestar does not know
        await asyncio.sleep(0.01)  # uvicorn takes one that returns before its connection is gone for a bug of ours
    except GONE:
        log.debug("nobody waits for the refusal")


ROUTES: list[Any] = [user_end, node_end]
