"""The SSH ports of machines that are being started."""

import socket

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.listeners import Listeners

ID, OTHER = "al-" + "a" * 16, "al-" + "b" * 16


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def connects(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_is_held_until_it_is_handed_over() -> None:
    port, listeners = free_port(), Listeners()
    listeners.ensure(ID, port)
    listeners.ensure(ID, port)
    assert connects(port)
    with listeners.taken(ID, port) as listener:
        kept = listener.dup()
    assert listeners.ids() == set()
    assert connects(port)
    kept.close()
    assert not connects(port)


def test_it_stays_ours_when_the_start_fails() -> None:
    port, listeners = free_port(), Listeners()
    with pytest.raises(HostError), listeners.taken(ID, port):
        raise HostError("start", ID, "no")
    assert listeners.ids() == {ID}
    listeners.close()
    assert not connects(port)


def test_a_taken_port_is_named() -> None:
    port, listeners = free_port(), Listeners()
    with socket.create_server(("", port)), pytest.raises(HostError, match=f"port {port} is in use"):
        listeners.ensure(ID, port)
    listeners.ensure(ID, port)
    with pytest.raises(HostError, match="in use"):
        listeners.ensure(OTHER, port)
    listeners.ensure(ID, free_port())
    listeners.ensure(OTHER, port)
    listeners.close()
