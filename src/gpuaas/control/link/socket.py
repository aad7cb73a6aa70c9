"""The async edge of the node link: moves frames between a WebSocket and `session`, and pushes specs when woken."""

import asyncio
import logging
import secrets
import time
from functools import partial
from typing import Any

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect

from gpuaas.control.app.streams import dials
from gpuaas.control.link import session as deciding
from gpuaas.control.link.cursor import Cursor
from gpuaas.control.link.pulse import Pulse
from gpuaas.control.link.session import LEASE_SECONDS, Session
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.kit.errors import Problem, Stale
from gpuaas.kit.log import bound
from gpuaas.wire.node import (
    Ack,
    Challenge,
    Fenced,
    FromServer,
    Heartbeat,
    Hello,
    Specs,
    encode,
    from_agent,
    from_server,
)

log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
SILENCE_SECONDS = 30.0  # the agent sends a heartbeat every few seconds
POLL_SECONDS = 60.0  # every heartbeat says whether there are newer specs: a lost wake-up delays them until then

Socket = WebSocket[Any, Any, Any]


@websocket("/node-link", opt={"action": "node.link"})
async def node_link(socket: Socket) -> None:
    await socket.accept()
    store: Store = socket.app.state.store
    try:
        greeted = await _greet(socket, store)
        if greeted is None:
            return
        with bound(node_id=greeted.node_id):
            log.info("node connected", extra={"fields": {"epoch": greeted.epoch}})
            store.meters.add("links", 1)
            try:
                state = socket.app.state
                await _Connection(socket, store, state.wakes, state.pulse, greeted).run()
            finally:
                store.meters.add("links", -1)
    except (WebSocketDisconnect, TimeoutError, msgspec.MsgspecError, Problem) as error:
        log.info("node link closed: %s", error or type(error).__name__)
    await _close(socket)


async def _greet(socket: Socket, store: Store) -> Session | None:
    nonce = secrets.token_hex(32)
    await socket.send_text(encode(Challenge(nonce)).decode())
    async with asyncio.timeout(HELLO_SECONDS):
        hello = from_agent(await socket.receive_text())
    if not isinstance(hello, Hello):
        return None
    answer = await asyncio.to_thread(store.transact, deciding.greet, hello, nonce)
    if isinstance(answer, Fenced):
        log.warning("a node was refused: %s", answer.reason, extra={"fields": {"node_id": hello.node_id}})
        await socket.send_text(encode(answer).decode())
        return None
    session, welcome = answer
    await socket.send_text(encode(welcome).decode())
    return session


class _Connection:
    """One greeted node: one task answers frames, one pushes specs, one passes dials on. Each ends all."""

    def __init__(self, socket: Socket, store: Store, wakes: Wakes, pulse: Pulse, session: Session) -> None:
        self.socket = socket
        self.store = store
        self.wakes = wakes
        self.pulse = pulse
        self.session = session
        self.cursor = Cursor()

    async def run(self) -> None:
        with self.wakes.on(f"node:{self.session.node_id}") as woken:
            moving = (self._read(woken), self._write(woken), self._dial())
            tasks = [asyncio.create_task(work) for work in moving]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, woken: asyncio.Event) -> None:
        while True:
            async with asyncio.timeout(SILENCE_SECONDS):
                frame = from_agent(await self.socket.receive_text())
            if isinstance(frame, Hello):
                return
            newest = None
            try:
                if isinstance(frame, Heartbeat):
                    newest = await self.pulse.beat(self.session, frame)
                answers: list[FromServer] = [Ack(frame.seq, LEASE_SECONDS)]
                if newest is None:
                    answers = await asyncio.to_thread(self.store.transact, deciding.receive, self.session, frame)
            except (Stale, Problem) as error:
                log.warning("a frame is left to be sent again: %s", error)
                continue
            for answer in answers:
                await self._send(answer)
                if isinstance(answer, Fenced):
                    log.info("node link fenced: %s", answer.reason)
                    return
            if isinstance(frame, Heartbeat):
                lag = self.cursor.confirmed(frame.revision, time.monotonic())
                if lag is not None:
                    self.store.meters.observe("link_lag_seconds", lag)
                behind = self.cursor.heartbeat(frame.revision, time.monotonic())
                if behind or (newest or 0) > (self.cursor.sent or 0):
                    woken.set()

    async def _write(self, woken: asyncio.Event) -> None:
        while True:
            await wait(woken, POLL_SECONDS)
            try:
                await self._push()
            except Problem as error:
                log.warning("specs are pushed later: %s", error)

    async def _push(self) -> None:
        while self.cursor.sent is not None:
            specs = await asyncio.to_thread(self.store.look, partial(self._outgoing, self.cursor.sent))
            if specs is None:
                return
            await self._send(specs)
            self.cursor.pushed(specs.upto, time.monotonic())

    def _outgoing(self, since: int, tx: Tx) -> Specs | None:
        return deciding.outgoing(tx, self.session, since)

    async def _dial(self) -> None:
        """Passes on what users at any replica ask of this node: a stream to one of its machines."""
        with self.wakes.mail(dials(self.session.node_id)) as wishes:
            while True:
                await self._send(from_server(await wishes.get()))

    async def _send(self, frame: FromServer) -> None:
        await self.socket.send_text(encode(frame).decode())


async def _close(socket: Socket) -> None:
    try:
        await socket.close()
    except (RuntimeError, WebSocketDisconnect):
        log.debug("the other side was faster")
