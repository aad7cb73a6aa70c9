"""Images over real HTTP: in one piece, in several, cut off, refused, and not at all."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec.structs import replace

from gpuaas.node.fetch import CHUNK_BYTES, FIRST_PAUSE_SECONDS, NOT_HERE_SECONDS, REFUSALS, Fetcher, keep_fetching
from gpuaas.node.identity import Identity
from gpuaas.node.servers import Servers
from gpuaas.wire import node_request
from gpuaas.wire.node import RuntimeReport, RuntimeSpec
from node.samples import ID, NODE, World, body

DATA = bytes(range(256)) * 20_000
DIGEST = hashlib.sha256(DATA).hexdigest()
SPEC = RuntimeSpec("tool", "1.0", DIGEST, len(DATA))


@dataclass
class Server:
    data: bytes = DATA
    status: int = 0  # what it answers instead
    said: bytes = b""  # with it
    cut: int = 0  # bytes after which it goes away
    ranges: bool = True
    shift: int = 0  # it sends another part than was asked for
    asked: list[str] = field(default_factory=list)
    signed: list[tuple[str, str, int, str]] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        headers = request.headers
        self.asked.append(headers["Range"])
        self.signed.append(
            (headers[node_request.NODE], request.path, int(headers[node_request.TIME]), headers[node_request.SIGNATURE])
        )
        if self.status:
            request.send_response(self.status)
            request.send_header("Content-Length", str(len(self.said)))
            request.end_headers()
            request.wfile.write(self.said)
            return
        first = int(headers["Range"].removeprefix("bytes=").rstrip("-")) if self.ranges else 0
        part = self.data[first:]
        request.send_response(206 if self.ranges else 200)
        request.send_header("Content-Length", str(len(part)))
        if self.ranges:
            request.send_header("Content-Range", f"bytes {first + self.shift}-{len(self.data) - 1}/{len(self.data)}")
        request.end_headers()
        request.wfile.write(part[: self.cut or None])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    yield made
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture
def world() -> World:
    made = World()
    made.launch(runtimes=[SPEC])
    return made


@pytest.fixture
def fetcher(world: World, server: Server) -> Fetcher:
    return Fetcher(world.runner, Servers(server.url), Identity(Ed25519PrivateKey.generate()).sign_request, world.clock)


def report(world: World) -> RuntimeReport:
    world.settle()
    (found,) = world.condition().runtimes
    return found


def go(world: World, fetcher: Fetcher) -> RuntimeReport:
    for missing in fetcher.due():
        fetcher.fetch(missing)
    return report(world)


def later(world: World, fetcher: Fetcher) -> RuntimeReport:
    """When it is tried again."""
    while not fetcher.due():
        world.clock.advance(FIRST_PAUSE_SECONDS)
    return go(world, fetcher)


def test_an_image_is_fetched_and_its_machine_has_it(world: World, fetcher: Fetcher, server: Server) -> None:
    assert report(world).state == "fetching"
    assert go(world, fetcher) == RuntimeReport("tool", "1.0", "ready", current=True)
    assert world.host.images() == {DIGEST: len(DATA)}
    assert server.asked == ["bytes=0-"]
    assert fetcher.due() == []


def test_the_request_is_signed_by_the_node(world: World, server: Server) -> None:
    key = Ed25519PrivateKey.generate()
    go(world, Fetcher(world.runner, Servers(server.url), Identity(key).sign_request, world.clock))
    ((node, path, at, signature),) = server.signed
    assert (node, path) == (NODE, f"/api/v1/runtime-images/{DIGEST}")
    assert at == int(world.clock.now().timestamp())
    public = Ed25519PublicKey.from_public_bytes(key.public_key().public_bytes_raw())
    public.verify(bytes.fromhex(signature), node_request.signed("GET", path, at))


@pytest.mark.parametrize("ranges", [True, False])
def test_what_was_cut_off_goes_on(world: World, fetcher: Fetcher, server: Server, ranges: bool) -> None:
    server.cut = len(DATA) // 2
    said = go(world, fetcher)
    assert (said.state, said.code, said.percent) == ("fetching", "server_unreachable", 50)
    server.cut, server.ranges = 0, ranges
    assert fetcher.due() == []
    assert later(world, fetcher).state == "ready"
    assert server.asked == ["bytes=0-", f"bytes={len(DATA) // 2}-"]


def test_a_server_that_is_not_there_is_asked_for_ever(world: World, fetcher: Fetcher, server: Server) -> None:
    server.status = 503
    for _ in range(3 * REFUSALS):
        assert later(world, fetcher).state == "fetching"
    asked = len(server.asked)
    fetcher.servers = Servers("http://127.0.0.1:1")
    assert later(world, fetcher).code == "server_unreachable"
    assert len(server.asked) == asked, "another server was asked"
    server.status, fetcher.servers = 0, Servers(server.url)
    assert later(world, fetcher).state == "ready"


@pytest.mark.parametrize("fault", [{"status": 404}, {"status": 403}, {"shift": 7}, {"data": DATA[:-1] + b"!"}])
def test_what_is_refused_again_and_again_has_failed(
    world: World, fetcher: Fetcher, server: Server, fault: dict[str, object]
) -> None:
    for name, value in fault.items():
        setattr(server, name, value)
    said = [later(world, fetcher).state for _ in range(REFUSALS)]
    assert said == ["fetching"] * (REFUSALS - 1) + ["failed"]
    assert report(world).code == "fetch_refused"
    assert report(world).message
    assert world.host.images() == {}
    server.status, server.shift, server.data = 0, 0, DATA
    assert later(world, fetcher).state == "ready"


def problem(code: str, detail: str, hint: str) -> bytes:
    return msgspec.json.encode({"status": 400, "code": code, "detail": detail, "hint": hint, "retry_after": 10})


def test_what_the_server_does_not_have_is_not_waited_for_for_ever(
    world: World, fetcher: Fetcher, server: Server
) -> None:
    server.status, server.said = 503, problem("image_not_here", "This server does not have the image.", "Deploy it.")
    begun = world.clock.boottime()
    while (said := later(world, fetcher)).state == "fetching":
        assert said.code == "image_not_here"
        assert world.clock.boottime() - begun < NOT_HERE_SECONDS
    assert world.clock.boottime() - begun < 2 * NOT_HERE_SECONDS
    assert (said.state, said.code) == ("failed", "image_not_here")
    assert said.message.startswith("This server does not have the image. Deploy it.")
    server.status = 0
    assert later(world, fetcher).state == "ready"


def test_a_refusal_says_what_the_server_says(world: World, fetcher: Fetcher, server: Server) -> None:
    server.status = 401
    server.said = problem("clock_skew", "The request was signed \x1b[2Jlong ago.", "Set the node's clock.")
    said = go(world, fetcher).message
    assert "signed \\x1b[2Jlong ago. Set the node's clock." in said
    assert "\x1b" not in said


@pytest.mark.parametrize("said", [b"", b"<html>no</html>", b"[]", b'{"detail": 7}', b'{"detail": "' + b"x" * 5000])
def test_a_refusal_of_something_on_the_way_says_its_status(
    world: World, fetcher: Fetcher, server: Server, said: bytes
) -> None:
    server.status, server.said = 403, said
    assert "(it answered 403)" in go(world, fetcher).message


def test_endless_data_is_not_taken(world: World, fetcher: Fetcher, server: Server) -> None:
    server.data = DATA + b"more" * 1000
    assert go(world, fetcher).state == "ready"
    assert world.host.images() == {DIGEST: len(DATA)}


def test_a_full_disk_is_said_after_room_was_looked_for(world: World, fetcher: Fetcher, server: Server) -> None:
    world.host.room_bytes = 10
    said = go(world, fetcher)
    assert (said.state, said.code) == ("failed", "node_disk")
    assert "room" in said.message
    assert server.asked == []

    def make_room() -> None:
        world.host.room_bytes = None

    fetcher.make_room = make_room
    assert later(world, fetcher).state == "ready"


def test_a_disk_that_fills_while_it_comes_is_cleared_and_it_goes_on(
    world: World, fetcher: Fetcher, server: Server
) -> None:
    def somebody_writes(point: str, id: str) -> None:
        if point == "image_append:after":
            world.host.hook, world.host.room_bytes = None, 10

    made: list[bool] = []

    def make_room() -> None:
        made.append(True)
        world.host.room_bytes = None

    fetcher.make_room, world.host.hook = make_room, somebody_writes
    assert go(world, fetcher).state == "ready"
    assert (made, server.asked) == ([True], ["bytes=0-", f"bytes={CHUNK_BYTES}-"])


def test_a_disk_that_stays_full_is_said(world: World, fetcher: Fetcher) -> None:
    def somebody_writes(point: str, id: str) -> None:
        if point == "image_append:after":
            world.host.room_bytes = 10

    world.host.hook = somebody_writes
    said = go(world, fetcher)
    assert (said.state, said.code) == ("failed", "node_disk")


def test_what_was_removed_while_it_came_comes_again(world: World, fetcher: Fetcher, server: Server) -> None:
    def somebody_tidies(point: str, id: str) -> None:
        if point == "image_append:after":
            world.host.hook = None
            world.host.images_tidy(lambda digest: False)

    world.host.hook = somebody_tidies
    said = go(world, fetcher)
    assert (said.state, said.code) == ("fetching", "fetched_again")
    assert later(world, fetcher).state == "ready"
    assert server.asked == ["bytes=0-", "bytes=0-"]


def test_a_disk_that_fails_at_the_end_is_not_the_servers_fault(world: World, fetcher: Fetcher, server: Server) -> None:
    world.host.fail("image_end", times=9, cause="Input/output error")
    said = go(world, fetcher)
    assert (said.state, said.code) == ("failed", "node_disk")
    assert "Input/output error" in said.message
    world.host.heal()
    assert later(world, fetcher).state == "ready"
    assert len(server.asked) == 1, "what has arrived is still there"


def test_a_full_disk_leaves_the_machine_what_it_has(world: World, fetcher: Fetcher, server: Server) -> None:
    """Another version is asked for, and there is no room for it: the one that is there stays the current one."""
    assert go(world, fetcher).state == "ready"
    larger = RuntimeSpec("tool", "2.0", "f" * 64, 1 << 40)
    world.launch(runtimes=[larger, replace(SPEC, current=False)])
    world.settle()
    world.host.room_bytes = 10
    for missing in fetcher.due():
        fetcher.fetch(missing)
    world.settle()
    condition = world.condition()
    assert condition.state == "ready"
    found = {each.version: (each.state, each.code, each.current) for each in condition.runtimes}
    assert found == {"2.0": ("failed", "node_disk", False), "1.0": ("ready", "", True)}
    assert len(server.asked) == 1, "nothing of it was fetched"


def test_progress_is_told_and_what_nobody_wants_is_left(world: World, fetcher: Fetcher, server: Server) -> None:
    told: list[int | None] = []

    def look(point: str, id: str) -> None:
        if point == "image_append:after":
            world.clock.advance(2.0)
            told.append(report(world).percent)
            if len(told) == 3:
                world.want(ID, body(world.host))
                world.tell()

    world.host.hook = look
    for missing in fetcher.due():
        fetcher.fetch(missing)
    world.host.hook = None
    assert told == [None, 40, 61]  # nothing was said before the first part was here
    assert world.host.images() == {}
    assert fetcher.due() == []


def test_it_is_not_faster_than_it_may_be(world: World, fetcher: Fetcher) -> None:
    fetcher.bytes_per_second = len(DATA) / 10
    fetcher.sleep = world.clock.advance
    before = world.clock.boottime()
    assert go(world, fetcher).state == "ready"
    assert world.clock.boottime() - before == pytest.approx(10, abs=0.1)


def test_the_worker_does_it_by_itself_and_ends(world: World, fetcher: Fetcher) -> None:
    here = threading.Event()

    def look(point: str, id: str) -> None:
        if (point, id) == ("image_end:after", DIGEST):
            here.set()

    async def work() -> None:
        worker = asyncio.create_task(keep_fetching(fetcher, pause_seconds=0.01))
        assert await asyncio.to_thread(here.wait, 30)
        worker.cancel()
        await asyncio.wait([worker])

    world.host.hook = look
    asyncio.run(work())
    assert fetcher.stopped.is_set()
    assert world.host.images() == {DIGEST: len(DATA)}
