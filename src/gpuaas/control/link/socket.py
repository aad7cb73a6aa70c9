"""The async edge of the node link: moves frames between a WebSocket and `session`, and pushes specs when woken."""

import asyncio
import logging
import secrets
import time
from typing import Any

import msgspec
from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect

from gpuaas.control.link import session as deciding
from gpuaas.control.link.session import Session
from gpuaas.control.store.transaction import Store
from gpuaas.control.store.wakes import Wakes, wait
from gpuaas.kit.errors import Problem, Stale
from gpuaas.kit.log import bound
from gpuaas.wire.node import Challenge, Fenced, FromServer, Heartbeat, Hello, encode, from_agent

log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
SILENCE_SECONDS = 30.0  # the agent sends a heartbeat every few seconds
POLL_SECONDS = 5.0  # how long a lost wake-up can delay a spec
RESEND_SECONDS = 2.0  # a node that is still behind this long after a push is sent everything again

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
            await _Connection(socket, store, socket.app.state.wakes, greeted).run()
    except (WebSocketDisconnect, TimeoutError, msgspec.MsgspecError) as error:
        log.info("node link closed: %s", error or type(error).__name__)
    await _close(socket)


async def _greet(socket: Socket, store: Store) -> Session | None:
    nonce = secrets.token_hex(32)
    await socket.send_text(encode(Challenge(nonce)).decode())
    hello = from_agent(await asyncio.wait_for(socket.receive_text(), HELLO_SECONDS))
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
    """One greeted node: a reader that answers frames, a writer that pushes specs. Either ends both."""

    def __init__(self, socket: Socket, store: Store, wakes: Wakes, session: Session) -> None:
        self.socket = socket
        self.store = store
        self.wakes = wakes
        self.session = session
        self.sent: int | None = None  # the newest revision pushed; None until the node said what it has
        self.sent_at = 0.0

    async def run(self) -> None:
        with self.wakes.on(f"node:{self.session.node_id}") as woken:
            tasks = [asyncio.create_task(self._read(woken)), asyncio.create_task(self._write(woken))]
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
            frame = from_agent(await asyncio.wait_for(self.socket.receive_text(), SILENCE_SECONDS))
            if isinstance(frame, Hello):
                return
            try:
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
                self._catch_up(frame.revision, woken)

    def _catch_up(self, revision: int, woken: asyncio.Event) -> None:
        behind = self.sent is None or (revision < self.sent and time.monotonic() - self.sent_at > RESEND_SECONDS)
        if behind:
            self.sent = revision
            woken.set()

    async def _write(self, woken: asyncio.Event) -> None:
        while True:
            await wait(woken, POLL_SECONDS)
            while self.sent is not None:
                specs = await asyncio.to_thread(self.store.transact, deciding.outgoing, self.session, self.sent)
                if specs is None:
                    break
                await self._send(specs)
                self.sent, self.sent_at = specs.upto, time.monotonic()

    async def _send(self, frame: FromServer) -> None:
        await self.socket.send_text(encode(frame).decode())


async def _close(socket: Socket) -> None:
    try:
        await socket.close()
    except (RuntimeError, WebSocketDisconnect):
        log.debug("the other side was faster")
