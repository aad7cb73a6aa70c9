"""Which addresses machines are kept from: those that the servers' names have now."""

import asyncio
import socket
import threading

from gpuaas.kit.errors import HostError
from gpuaas.node.hiding import End, Hiding, hide_first, lookup
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.servers import Servers


class Names:
    """A name server that can be told what to say."""

    def __init__(self, **known: list[str]) -> None:
        self.known = known
        self.away = False

    def __call__(self, name: str, port: int) -> list[End]:
        if self.away or name not in self.known:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(address, port) for address in self.known[name]]


class Counting(FakeHost):
    asked = 0
    fails = False

    def hide(self, servers: object) -> None:
        self.asked += 1
        if self.fails:
            raise HostError("hide", "a server", "nft does not answer")
        super().hide(servers)  # type: ignore[arg-type]


def test_all_addresses_of_all_servers_are_hidden_and_followed() -> None:
    host, names = Counting(), Names(a=["10.0.0.1", "10.0.0.2"], b=["10.0.0.3"])
    servers = Servers("https://a,http://b:7070,http://nowhere")
    hiding = Hiding(host, servers, names)
    hiding.look()
    assert host.hidden == {("10.0.0.1", 443), ("10.0.0.2", 443), ("10.0.0.3", 7070)}
    hiding.look()
    assert host.asked == 1
    names.known["a"] = ["10.0.0.9"]
    hiding.look()
    assert host.hidden == {("10.0.0.9", 443), ("10.0.0.3", 7070)}
    names.away = True
    hiding.look()
    assert host.hidden == {("10.0.0.9", 443), ("10.0.0.3", 7070)}  # as last known
    names.away = False
    names.known["c"] = ["10.0.0.4"]
    servers.met("https://c:8443")
    hiding.look()
    assert ("10.0.0.4", 8443) in host.hidden


def test_what_the_host_did_not_do_is_asked_again() -> None:
    host = Counting()
    host.fails = True
    hiding = Hiding(host, Servers("https://a"), Names(a=["10.0.0.1"]))
    hiding.look()
    host.fails = False
    hiding.look()
    assert host.hidden == {("10.0.0.1", 443)}


def test_machines_do_not_wait_for_a_name_server_that_is_away() -> None:
    host, answer = FakeHost(), threading.Event()

    def slowly(name: str, port: int) -> list[End]:
        assert answer.wait(10)
        return [("10.0.0.1", port)]

    async def both() -> None:
        await hide_first(Hiding(host, Servers("https://a"), slowly), patience_seconds=0.01)
        assert host.hidden == set()
        answer.set()

    asyncio.run(both())  # waits for its threads
    assert host.hidden == {("10.0.0.1", 443)}


def test_a_server_on_this_machine_is_hidden_anyway() -> None:
    host = FakeHost()
    Hiding(host, Servers("http://localhost:7070,http://127.0.0.1:7071")).look()
    assert host.hidden == set()
    assert lookup("192.0.2.1", 80) == [("192.0.2.1", 80)]
