"""Images from a registry: a real one; and one that is away, refuses, is cut off or lies. The server has the rest."""

# ruff: noqa: F811 fixtures of another file
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gpuaas.kit.registry import Place, Registry
from gpuaas.node.depot import REST_SECONDS, Depot
from gpuaas.node.fetch import CHUNK_BYTES, Fetcher
from gpuaas.node.servers import Servers
from gpuaas.wire.node import RuntimeReport
from node.samples import World
from node.test_fetch import DATA, DIGEST, Server, fetcher, go, later, server, world  # noqa: F401
from oci import credentials, needs_registry, registry, respond, web_server

HALF = len(DATA) // 2


@dataclass
class Odd:
    """A registry that does what the test says."""

    status: int = 0
    cut: int = 0
    data: bytes = DATA
    shift: int = 0
    asked: list[str | None] = field(default_factory=list)
    place: Place = field(init=False)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        assert request.path == f"/v2/team/blobs/sha256:{DIGEST}"
        self.asked.append(request.headers["Range"])
        if self.status:
            respond(request, self.status)
            return
        first = int((request.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        part = self.data[first:]
        request.send_response(206 if first else 200)
        request.send_header("Content-Length", str(len(part)))
        request.send_header("Content-Range", f"bytes {first + self.shift}-{len(self.data) - 1}/{len(self.data)}")
        request.end_headers()
        request.wfile.write(part[: self.cut or None])


@pytest.fixture
def odd(fetcher: Fetcher) -> Iterator[Odd]:
    made = Odd()
    with web_server(made.answer) as address:
        made.place = Place.parse(f"{address}/team")
        fetcher.depot = Depot(Registry(made.place), fetcher.clock)
        yield made


@pytest.fixture
def real(tmp_path: Path, fetcher: Fetcher) -> Iterator[Registry]:
    with registry(tmp_path / "registry", login=True) as address:
        made = Registry(Place.parse(f"{address}/team/runtimes"), credentials(tmp_path / "config.json", address))
        fetcher.depot = Depot(made, fetcher.clock)
        yield made


def told(world: World, fetcher: Fetcher) -> list[RuntimeReport]:
    """One try, and all that its machine was told meanwhile."""
    said: list[RuntimeReport] = []

    def look(point: str, id: str) -> None:
        if point == "image_append:after":
            world.settle()
            said.extend(world.condition().runtimes)

    world.host.hook = look
    last = go(world, fetcher)
    world.host.hook = None
    return [*said, last]


@needs_registry
def test_what_the_registry_has_comes_from_there(world: World, fetcher: Fetcher, server: Server, real: Registry) -> None:
    real.send_blob(f"sha256:{DIGEST}", DATA)
    assert go(world, fetcher).state == "ready"
    assert world.host.images() == {DIGEST: len(DATA)}
    assert server.asked == []


@needs_registry
def test_it_goes_on_from_what_is_here(world: World, fetcher: Fetcher, server: Server, real: Registry) -> None:
    """A registry that does not know ranges would send what is here, and the image would be another one."""
    real.send_blob(f"sha256:{DIGEST}", DATA)
    world.host.image_append(DIGEST, 0, DATA[:HALF])
    said = told(world, fetcher)
    assert said[-1].state == "ready"
    assert len(said) - 1 == -(-(len(DATA) - HALF) // CHUNK_BYTES)
    assert server.asked == []


@needs_registry
def test_what_the_registry_does_not_have_comes_from_the_server(
    world: World, fetcher: Fetcher, server: Server, real: Registry
) -> None:
    said = told(world, fetcher)
    assert said[-1].state == "ready"
    assert said[0].code == "from_server"
    assert said[0].message == f"The registry {real.place} does not have its image; the server is asked."
    assert server.asked == ["bytes=0-"]


def test_what_was_cut_off_goes_on_there_or_from_the_server(
    world: World, fetcher: Fetcher, server: Server, odd: Odd
) -> None:
    odd.cut, server.status = HALF, 500
    said = go(world, fetcher)
    assert (said.state, said.code, said.percent) == ("fetching", "server_unreachable", 50)
    assert "does not send its image; the server is asked. The server does not send" in said.message
    odd.cut = 100
    server.status = 0
    assert later(world, fetcher).state == "ready"
    assert odd.asked == [None, f"bytes={HALF}-"]
    assert server.asked == [f"bytes={HALF}-", f"bytes={HALF + 100}-"]


def test_a_cut_registry_alone_is_enough_in_the_end(world: World, fetcher: Fetcher, server: Server, odd: Odd) -> None:
    fetcher.servers = Servers("http://127.0.0.1:1")
    odd.cut = HALF
    assert go(world, fetcher).state == "fetching"
    odd.cut = 0
    assert later(world, fetcher).state == "ready"
    assert odd.asked == [None, f"bytes={HALF}-"]


@pytest.mark.parametrize("cut", [0, HALF])
def test_what_is_another_image_is_fetched_from_the_server_alone(
    world: World, fetcher: Fetcher, server: Server, odd: Odd, cut: int
) -> None:
    odd.data, odd.cut = b"!" + DATA[1:], cut
    said = told(world, fetcher)
    assert said[-1].state == "ready"
    assert "sent another image" in said[-2].message
    assert len(odd.asked) == 1
    assert server.asked[-1] == "bytes=0-"


def test_a_registry_that_sends_another_part(world: World, fetcher: Fetcher, server: Server, odd: Odd) -> None:
    world.host.image_append(DIGEST, 0, DATA[:HALF])
    odd.shift = 7
    assert go(world, fetcher).state == "ready"
    assert server.asked == [f"bytes={HALF}-"]


@pytest.mark.parametrize(("status", "why"), [(403, "(it answered 403)"), (500, "(it answered 500)"), (0, "not answer")])
def test_a_registry_that_does_not_answer_is_left_alone_for_a_while(
    world: World, fetcher: Fetcher, server: Server, odd: Odd, status: int, why: str
) -> None:
    odd.status, server.status = status, 500
    if not status:
        fetcher.depot = Depot(Registry(Place.parse("127.0.0.1:1/team")), fetcher.clock)
    assert why in go(world, fetcher).message
    asked = len(odd.asked)
    begun = world.clock.boottime()
    while world.clock.boottime() - begun < REST_SECONDS / 2:
        assert why in later(world, fetcher).message
    assert len(odd.asked) == asked
    world.clock.advance(REST_SECONDS)
    odd.status = 0
    if status:
        assert later(world, fetcher).state == "ready"


def test_credentials_that_cannot_be_read_are_named(
    world: World, fetcher: Fetcher, server: Server, odd: Odd, tmp_path: Path
) -> None:
    odd.status, server.status = 401, 500
    fetcher.depot = Depot(Registry(odd.place, tmp_path / "none"), fetcher.clock)
    said = go(world, fetcher).message
    assert f"credentials in {tmp_path}/none cannot be used" in said
    server.status = 0
    assert later(world, fetcher).state == "ready"


def test_it_is_not_faster_than_it_may_be(world: World, fetcher: Fetcher, odd: Odd) -> None:
    fetcher.bytes_per_second = len(DATA) / 10
    fetcher.sleep = world.clock.advance
    before = world.clock.boottime()
    assert go(world, fetcher).state == "ready"
    assert world.clock.boottime() - before == pytest.approx(10, abs=0.1)
