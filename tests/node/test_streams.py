"""Dial-backs of an agent, against a server of our own: what it says, what it refuses, how bytes flow."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from gpuaas.kit.errors import HostError
from gpuaas.node import streams as node_streams
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.servers import Servers
from gpuaas.node.streams import Streams
from gpuaas.wire.node import Dial
from gpuaas.wire.streams import DIAL_BACK_PATH, NODE_FAILED

ID = "al-aaaaaaaaaaaaaaaa"
NODE = "nd-aaaaaaaaaaaaaaaa"
TICKET = "t" * 43
MEGABYTE = 1024 * 1024
Handle = Callable[[ServerConnection], Awaitable[None]]


class Host(FakeHost):
    """Its machines are sockets whose other end the test holds."""

    def __init__(self) -> None:
        super().__init__()
        self.machines: list[socket.socket] = []
        self.sources: list[str] = []
        self.broken = ""

    def connect(self, id: str, source: str) -> socket.socket:
        if self.broken:
            raise HostError("connect", id, self.broken)
        theirs, ours = socket.socketpair()
        self.machines.append(ours)
        self.sources.append(source)
        return theirs


@asynccontextmanager
async def agent(host: Host, handle: Handle) -> AsyncIterator[Streams]:
    async with serve(handle, "127.0.0.1", 0, max_queue=2, ping_interval=None) as server:
        port = server.sockets[0].getsockname()[1]
        streams = Streams(host, NODE, Servers(f"http://127.0.0.1:{port}"))
        keeping = asyncio.create_task(streams.keep())
        try:
            yield streams
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            for machine in host.machines:
                machine.close()


def dialled(host: Host, handle: Handle, dial: Dial | None = None) -> None:
    """One stream, until `handle` is done with it."""

    async def run() -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def once(user: ServerConnection) -> None:
            try:
                await handle(user)
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        async with asyncio.timeout(30), agent(host, once) as streams:
            streams.wanted.put_nowait(dial or Dial(ID, TICKET, "", "192.0.2.7"))
            await done

    asyncio.run(run())


async def machine(host: Host) -> socket.socket:
    while not host.machines:  # noqa: ASYNC110 the host is plain code in a thread
        await asyncio.sleep(0.005)
    host.machines[0].setblocking(False)
    return host.machines[0]


def test_it_dials_back_with_the_ticket_and_bytes_go_both_ways() -> None:
    host = Host()

    async def handle(user: ServerConnection) -> None:
        assert user.request is not None
        parts = urlsplit(user.request.path)
        assert parts.path == DIAL_BACK_PATH
        assert parse_qs(parts.query) == {"node": [NODE], "allocation": [ID]}
        assert TICKET not in user.request.path
        assert user.request.headers["Authorization"] == f"Bearer {TICKET}"
        loop = asyncio.get_running_loop()
        there = await machine(host)
        await user.send(b"hello")
        assert await loop.sock_recv(there, 100) == b"hello"
        await loop.sock_sendall(there, b"welcome")
        assert await user.recv() == b"welcome"

    dialled(host, handle)
    assert host.sources == ["192.0.2.7"]


def test_the_user_has_said_everything_but_still_listens() -> None:
    host = Host()

    async def handle(user: ServerConnection) -> None:
        loop = asyncio.get_running_loop()
        there = await machine(host)
        await user.send(b"last words")
        await user.send(b"")
        assert await loop.sock_recv(there, 100) == b"last words"
        assert await loop.sock_recv(there, 100) == b""
        await loop.sock_sendall(there, b"answer")
        there.close()
        assert await user.recv() == b"answer"
        with pytest.raises(ConnectionClosed):
            await user.recv()
        assert user.close_code == 1000

    dialled(host, handle)


def test_a_user_who_leaves_takes_nothing_back() -> None:
    """What was sent before the end arrives, and the machine sees an end."""
    host = Host()
    sent = bytes(range(256)) * 4096

    async def handle(user: ServerConnection) -> None:
        loop = asyncio.get_running_loop()
        there = await machine(host)

        async def send() -> None:
            for start in range(0, len(sent), 16384):
                await user.send(sent[start : start + 16384])
            await user.close()

        sending = asyncio.create_task(send())
        got = b""
        while data := await loop.sock_recv(there, 65536):
            got += data
        assert got == sent
        await sending

    dialled(host, handle)


def test_a_slow_reader_stops_the_machine_and_loses_nothing() -> None:
    host = Host()
    total = 24 * MEGABYTE
    written = 0

    def flood(there: socket.socket) -> None:
        nonlocal written
        there.setblocking(True)
        block = bytes(range(256)) * 256
        while written < total:
            there.sendall(block)
            written += len(block)
        there.close()

    async def handle(user: ServerConnection) -> None:
        there = await machine(host)
        threading.Thread(target=flood, args=(there,), daemon=True).start()
        seen = 0
        while seen != written or not written:  # until nothing moves any more
            seen = written
            await asyncio.sleep(0.3)
        assert written < total / 2, "somebody keeps what the user has not read"
        got = 0
        async for data in user:
            assert isinstance(data, bytes)
            assert data[0] == got % 256
            got += len(data)
        assert got == total
        assert user.close_code == 1000

    dialled(host, handle)


def test_a_machine_that_cannot_be_reached_says_why() -> None:
    host = Host()
    host.broken = "its sshd is not there " + "x" * 200

    async def handle(user: ServerConnection) -> None:
        with pytest.raises(ConnectionClosed):
            await user.recv()
        assert user.close_code == NODE_FAILED
        assert user.close_reason is not None
        assert user.close_reason.startswith("The node cannot reach the machine: its sshd is not there")

    dialled(host, handle)


def test_a_node_carries_so_many_streams_and_no_more() -> None:
    host = Host()
    refused: list[str] = []

    async def run() -> None:
        enough = asyncio.Event()

        async def handle(user: ServerConnection) -> None:
            with suppress(ConnectionClosed):
                await user.recv()
            refused.append(user.close_reason or "")
            enough.set()

        async with asyncio.timeout(30), agent(host, handle) as streams:
            for _ in range(node_streams.MOST + 1):
                streams.wanted.put_nowait(Dial(ID, TICKET, ""))
            await enough.wait()
            assert len(refused) == 1
            assert "takes no more" in refused[0]

    asyncio.run(run())
    assert len(host.machines) <= node_streams.MOST


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://127.0.0.1:1", "nonsense"])
def test_what_cannot_be_dialled_disturbs_nothing(url: str) -> None:
    host = Host()

    async def run() -> None:
        came = asyncio.Event()

        async def handle(user: ServerConnection) -> None:
            came.set()

        async with asyncio.timeout(30), agent(host, handle) as streams:
            streams.wanted.put_nowait(Dial(ID, TICKET, url))
            streams.wanted.put_nowait(Dial(ID, TICKET, ""))
            await came.wait()

    asyncio.run(run())


def test_a_link_with_tls_is_not_left_for_a_stream_without() -> None:
    streams = Streams(Host(), NODE, Servers("https://gpu.example.org"))
    assert streams._address(Dial(ID, TICKET, "https://b.example.org/")).startswith(
        "wss://b.example.org/api/v1/streams?"
    )
    with pytest.raises(ValueError, match="without TLS"):
        streams._address(Dial(ID, TICKET, "http://b.example.org"))
