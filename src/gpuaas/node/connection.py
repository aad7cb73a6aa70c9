"""Keeps one WebSocket to the server and moves frames between it and the link. The only I/O of the node link."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from gpuaas.kit.clock import Clock
from gpuaas.node.backoff import Backoff
from gpuaas.node.link import Link
from gpuaas.node.servers import Servers
from gpuaas.wire.node import LINK_PATH, FromAgent, encode, from_server

log = logging.getLogger(__name__)

MAX_SERVER_FRAME_BYTES = 16 * 1024 * 1024
OPEN_SECONDS = 10.0
CLOSE_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 1.0
_T = TypeVar("_T")


class Connection:
    """`woken` is set when there may be something to say."""

    def __init__(self, servers: Servers, link: Link, clock: Clock, woken: asyncio.Event) -> None:
        self._servers = servers
        self._link = link
        self._clock = clock
        self._woken = woken
        # One thread, because the link writes the journal: off the event loop, and strictly one call after the other.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="link")
        self._sending = asyncio.Lock()

    async def keep(self) -> None:
        """Connects again and again, until cancelled."""
        backoff = Backoff()
        try:
            while True:
                if await self._once():
                    backoff.reset()
                await asyncio.sleep(backoff.next())
        finally:
            self._thread.shutdown(wait=False)

    async def _once(self) -> bool:
        """One connection from beginning to end; whether it ever was of use."""
        was_open = False
        server = self._servers.url
        try:
            async with connect(
                self._servers.websocket + LINK_PATH,
                max_size=MAX_SERVER_FRAME_BYTES,
                open_timeout=OPEN_SECONDS,
                close_timeout=CLOSE_SECONDS,
                compression=None,  # frames are small: it would cost both ends more than it saves on the way
            ) as socket:
                await self._call(self._link.connected)
                try:
                    await self._talk(socket)
                finally:
                    # One that was fenced comes back slowly: two agents with one identity must not chase each other.
                    was_open = self._link.state == "open" and not self._link.broken
                    await socket.close()
        except (OSError, WebSocketException, msgspec.MsgspecError) as error:
            log.info("no connection to %s: %s", server, error or type(error).__name__)
        finally:
            await self._call(self._link.disconnected)
        if not was_open:
            self._servers.failed(server)
        return was_open

    async def _talk(self, socket: ClientConnection) -> None:
        tasks = [asyncio.ensure_future(self._read(socket)), asyncio.ensure_future(self._write(socket))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, socket: ClientConnection) -> None:
        async for message in socket:
            frame = from_server(message)
            async with self._sending:
                await self._send(socket, await self._call(partial(self._link.receive, frame)))
            if self._link.broken:
                return

    async def _write(self, socket: ClientConnection) -> None:
        while not self._link.broken:
            pause = max(0.0, self._link.due() - self._clock.boottime())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LONGEST_WAIT_SECONDS, pause)):
                    await self._woken.wait()
            self._woken.clear()
            async with self._sending:
                await self._send(socket, await self._call(self._link.poll))

    async def _send(self, socket: ClientConnection, frames: list[FromAgent]) -> None:
        for frame in frames:
            await socket.send(encode(frame).decode())

    async def _call(self, act: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)
