"""Streams that users open through the server: for each Dial a second WebSocket, joined with a machine's sshd."""

import asyncio
import logging
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from gpuaas.kit.errors import HostError
from gpuaas.kit.log import bound
from gpuaas.node.host.interface import Host
from gpuaas.node.pump import pump
from gpuaas.node.servers import Servers, websocket_url
from gpuaas.wire.node import Dial
from gpuaas.wire.streams import DIAL_BACK_PATH, MAX_FRAME_BYTES, NODE_FAILED, close

log = logging.getLogger(__name__)

MOST = 64
OPEN_SECONDS = 10.0
FLUSH_SECONDS = 300.0  # what a slow reader has to take the last bytes, after the machine hung up


class Streams:
    """`wanted` is where the link puts what it is told; nothing here ever disturbs the link."""

    def __init__(self, host: Host, node_id: str, servers: Servers) -> None:
        self.wanted: asyncio.Queue[Dial] = asyncio.Queue()
        self._host = host
        self._node_id = node_id
        self._servers = servers
        self._open = 0

    async def keep(self) -> None:
        """Until cancelled; then every stream ends."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._stream(await self.wanted.get()))

    async def _stream(self, dial: Dial) -> None:
        full = self._open >= MOST  # said over a stream of its own, so that the user hears it at once
        self._open += not full
        try:
            with bound(allocation_id=dial.id):
                await self._dialled(dial, full)
        except (OSError, WebSocketException, ValueError) as error:
            log.info("a stream broke: %s", error or type(error).__name__)
        except Exception:
            log.exception("a stream failed")
        finally:
            self._open -= not full

    async def _dialled(self, dial: Dial, full: bool) -> None:
        async with connect(
            self._address(dial),
            additional_headers={"Authorization": f"Bearer {dial.ticket}"},
            compression=None,  # what ssh sends does not compress
            max_size=MAX_FRAME_BYTES,
            open_timeout=OPEN_SECONDS,
            close_timeout=FLUSH_SECONDS,
            ping_timeout=None,  # the pong waits behind data that nobody reads
        ) as socket:
            if full:
                await socket.close(
                    *close(NODE_FAILED, f"The node carries {MOST} streams and takes no more; try later.")
                )
            else:
                await self._connected(socket, dial)

    async def _connected(self, socket: ClientConnection, dial: Dial) -> None:
        try:
            machine = await asyncio.to_thread(self._host.connect, dial.id, dial.source)
        except HostError as error:
            log.warning("cannot connect to a machine: %s", error)
            await socket.close(*close(NODE_FAILED, f"The node cannot reach the machine: {error.cause}."))
            return
        log.info("a stream is open")
        await pump(socket, machine)

    def _address(self, dial: Dial) -> str:
        linked = self._servers.websocket
        base = websocket_url(dial.url) if dial.url else linked
        if dial.url:
            self._servers.met(dial.url)
        if linked.startswith("wss:") and not base.startswith("wss:"):
            raise ValueError("the server asks for a stream without TLS, and the link has it")
        return f"{base}{DIAL_BACK_PATH}?{urlencode({'node': self._node_id, 'allocation': dial.id})}"
