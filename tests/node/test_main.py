"""The real process parts: a WebSocket server on 127.0.0.1 that speaks the protocol, files on a real disk."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from websockets.asyncio.server import Server, ServerConnection, serve

from gpuaas.kit.errors import Problem
from gpuaas.node.config import AgentConfig
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.fake_state import State
from gpuaas.node.identity import identity
from gpuaas.node.join import join
from gpuaas.node.main import run
from gpuaas.node.servers import Servers
from gpuaas.wire.node import (
    Ack,
    Challenge,
    Condition,
    FromServer,
    Heartbeat,
    Hello,
    Holdings,
    Report,
    Sample,
    Samples,
    Spec,
    Specs,
    Welcome,
    encode,
    from_agent,
)
from node.samples import ID, NODE, STORE, body


class TinyServer:
    """Holds specs, syncs and acknowledges everything, and remembers what it heard."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []
        self.hellos: list[Hello] = []
        self.conditions: dict[str, Condition] = {}
        self.samples: list[Sample] = []
        self.changed = asyncio.Condition()
        self.sockets: list[ServerConnection] = []
        self.url = ""

    async def start(self) -> Server:
        server = await serve(self._talk, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def want(self, spec: Spec) -> None:
        self.specs.append(spec)
        for socket in self.sockets:
            await self._push(socket, len(self.specs) - 1)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(reached)

    async def _talk(self, socket: ServerConnection) -> None:
        await self._send(socket, Challenge("abc"))
        async for text in socket:
            frame = from_agent(text)
            if isinstance(frame, Hello):
                self.hellos.append(frame)
                await self._send(socket, Welcome(STORE, len(self.hellos), frame.store_id == STORE, 30))
            elif isinstance(frame, Samples):
                self.samples += frame.samples
            else:
                await self._send(socket, Ack(frame.seq, 30 if isinstance(frame, Heartbeat) else 0))
                if isinstance(frame, Heartbeat) and socket not in self.sockets:
                    self.sockets.append(socket)
                    await self._push(socket, frame.revision)
                assert not isinstance(frame, Holdings) or frame.store_id == STORE
            if isinstance(frame, Report):
                self.conditions |= {condition.id: condition for condition in frame.conditions}
            async with self.changed:
                self.changed.notify_all()

    async def _push(self, socket: ServerConnection, since: int) -> None:
        await self._send(socket, Specs(STORE, since, len(self.specs), self.specs[since:]))

    async def _send(self, socket: ServerConnection, frame: FromServer) -> None:
        await socket.send(encode(frame).decode())


class Process:
    """The agent on a real directory. `host` is given from outside, as a machine outlives its agent."""

    def __init__(self, server: TinyServer, directory: Path, host: FakeHost, sample_seconds: float = 10.0) -> None:
        self.config = AgentConfig(server.url, directory, "one", sample_seconds=sample_seconds, host="modelled")
        self.stop = asyncio.Event()
        self.disk = FileDisk(directory)
        self.task = asyncio.create_task(run(self.config, host, self.disk, self.stop))

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, 10)


def scenario(play: Callable[[TinyServer], Awaitable[None]]) -> None:
    async def whole() -> None:
        server = TinyServer()
        listening = await server.start()
        try:
            await play(server)
        finally:
            listening.close()
            await listening.wait_closed()

    asyncio.run(whole())


def joined(directory: Path) -> None:
    FileDisk(directory).write("node.json", json.dumps({"node_id": NODE}).encode())


def state(server: TinyServer, wanted: str, generation: int) -> Callable[[], bool]:
    def reached() -> bool:
        condition = server.conditions.get(ID)
        return condition is not None and (condition.state, condition.generation) == (wanted, generation)

    return reached


def test_a_machine_is_launched_and_released_over_a_real_socket(tmp_path: Path) -> None:
    async def play(server: TinyServer) -> None:
        joined(tmp_path)
        host = FakeHost()
        agent = Process(server, tmp_path, host)
        await server.until(lambda: bool(server.sockets))
        hello = server.hellos[0]
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity(agent.disk).public_key))
        key.verify(bytes.fromhex(hello.signature), b"gpuaas-node-link:abc")
        await server.want(Spec(ID, 1, 1, 1, body(host)))
        await server.until(state(server, "ready", 1))
        assert host.starts == {ID: 1}
        await server.want(Spec(ID, 1, 2, 2, None))
        await server.until(state(server, "gone", 2))
        assert host.present() == []
        await agent.end()

    scenario(play)


def test_an_agent_that_comes_back_goes_on_where_it_was(tmp_path: Path) -> None:
    async def play(server: TinyServer) -> None:
        joined(tmp_path)
        host = FakeHost()
        agent = Process(server, tmp_path, host)
        await server.until(lambda: bool(server.sockets))
        await server.want(Spec(ID, 1, 1, 1, body(host)))
        await server.until(state(server, "ready", 1))
        await agent.end()
        server.conditions.clear()
        again = Process(server, tmp_path, host)
        await server.until(state(server, "ready", 1))
        assert (server.hellos[-1].store_id, server.hellos[-1].revision) == (STORE, 1)
        assert host.starts == {ID: 1}
        await again.end()

    scenario(play)


def test_a_dropped_connection_is_made_again(tmp_path: Path) -> None:
    async def play(server: TinyServer) -> None:
        joined(tmp_path)
        host = FakeHost()
        agent = Process(server, tmp_path, host)
        await server.until(lambda: bool(server.sockets))
        await server.sockets.pop().close()
        await server.until(lambda: len(server.hellos) == 2 and bool(server.sockets))
        await server.sockets[-1].send("this is no frame")
        await server.until(lambda: len(server.hellos) == 3)
        await agent.end()

    scenario(play)


def test_a_killed_agent_process_leaves_its_machines_running(tmp_path: Path) -> None:
    def saved() -> State:
        data = FileDisk(tmp_path / "fake-host", sync=False).read("host.json")
        assert data is not None
        return msgspec.json.decode(data, type=State)

    async def play(server: TinyServer) -> None:
        joined(tmp_path)
        program = (
            "from pathlib import Path\n"
            "from gpuaas.node.config import AgentConfig\n"
            "from gpuaas.node.main import run_agent\n"
            f"run_agent(AgentConfig({server.url!r}, Path({str(tmp_path)!r}), 'one', host='modelled'))"
        )
        agent = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        await server.until(lambda: bool(server.sockets))
        await server.want(Spec(ID, 1, 1, 1, body(FakeHost(name="one"))))
        await server.until(state(server, "ready", 1))
        agent.kill()
        await agent.wait()
        assert saved().containers[ID].running
        server.sockets.clear()
        server.conditions.clear()
        again = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
        await server.until(state(server, "ready", 1))
        again.terminate()
        assert await asyncio.wait_for(again.wait(), 10) == 0
        assert saved().starts == {ID: 1}

    scenario(play)


def test_a_node_joins_once_with_its_own_key(tmp_path: Path) -> None:
    requests: list[dict[str, str]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(re.findall(r"(?i)content-length: (\d+)", head)[0])
        requests.append({"path": head.split()[1], **json.loads(await reader.readexactly(length))})
        status, text = ("503 Busy", "{}") if len(requests) == 1 else ("201 Created", json.dumps({"node_id": NODE}))
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()

    async def play() -> None:
        me = identity(FileDisk(tmp_path))
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        assert await join(Servers(url), "token-token-token", "one", me) == NODE
        server.close()

    asyncio.run(play())
    assert len(requests) == 2
    request = requests[1]
    assert request == requests[0]
    assert request["path"] == "/api/v1/nodes/join"
    assert request["public_key"] == identity(FileDisk(tmp_path)).public_key
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(request["public_key"]))
    key.verify(bytes.fromhex(request["signature"]), b"gpuaas-node-join:token-token-token")


def test_an_agent_without_a_token_says_what_to_do(tmp_path: Path) -> None:
    config = AgentConfig("http://127.0.0.1:1", tmp_path, "one", host="modelled")
    with pytest.raises(Problem, match="not joined"):
        asyncio.run(run(config, FakeHost(), FileDisk(tmp_path), asyncio.Event()))


def test_a_torn_key_is_not_replaced_silently(tmp_path: Path) -> None:
    FileDisk(tmp_path).write("node.key", b"torn")
    with pytest.raises(Problem, match="cannot be read"):
        identity(FileDisk(tmp_path))


@pytest.mark.parametrize(
    "url", ["", ",", "gpuaas.example.org", "ftp://gpuaas.example.org", "http://", "https://a.org,b.org"]
)
def test_a_server_address_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="address of a server"):
        Servers(url)


def test_https_means_wss() -> None:
    assert Servers("https://example.org/").websocket == "wss://example.org"
