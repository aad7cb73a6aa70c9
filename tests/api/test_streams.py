"""Streams through the server: who gets one, who may dial back, and how bytes and refusals travel."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url, text
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from api.server import Replica
from api.world import World
from gpuaas import ApiError, Client, Unreachable
from gpuaas.control.store import tokens
from gpuaas.control.store.transaction import CHANNEL
from gpuaas.sdk.retry import Retry
from gpuaas.sdk.streams import Stream
from gpuaas.wire.node import Dial, from_server
from gpuaas.wire.streams import ACCESS_LOST, NODE_FAILED

MEGABYTE = 1024 * 1024


class Node:
    """Hears the Dials of one node as the replica with its link would, and dials back by hand."""

    def __init__(self, url: str, node_id: str, server: str) -> None:
        plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection = psycopg.connect(plain, autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")
        self.id = node_id
        self.server = server.replace("http://", "ws://")

    def dial(self) -> Dial:
        for notice in self._connection.notifies(timeout=20):
            topic, _, message = notice.payload.partition(" ")
            if topic == f"dial:{self.id}":
                found = from_server(message)
                assert isinstance(found, Dial)
                return found
        raise AssertionError("nobody asked for a stream")

    def back(self, dial: Dial, ticket: str | None = None, node: str | None = None) -> ClientConnection:
        address = f"{self.server}/api/v1/streams?node={node or self.id}&allocation={dial.id}"
        headers = {"Authorization": f"Bearer {ticket or dial.ticket}"}
        return connect(address, additional_headers=headers, compression=None, ping_timeout=None)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def node(replica: Replica, world: World, module_database_url: str) -> Iterator[Node]:
    made = Node(module_database_url, world.agent.node_id, replica.url)
    yield made
    made.close()


@contextmanager
def client(replica: Replica, world: World, who: str = "editor") -> Iterator[Client]:
    with Client(replica.url, world.people[who].secret, retry=Retry(attempts=1)) as made:
        yield made


@contextmanager
def joined(
    replica: Replica, world: World, node: Node, secret: str | None = None
) -> Iterator[tuple[Stream, ClientConnection]]:
    with (
        Client(replica.url, secret or world.people["editor"].secret) as asking,
        asking.allocations.connect(world.own.allocations["active"]) as user,
        node.back(node.dial()) as far,
    ):
        yield user, far


def refusal(replica: Replica, world: World, who: str, machine: str) -> ApiError:
    with client(replica, world, who) as asking, pytest.raises(ApiError) as refused:
        asking.allocations.connect(machine)
    return refused.value


@pytest.mark.parametrize("who", ["nobody", "garbage", "expired", "revoked", "disabled"])
def test_no_valid_token(replica: Replica, world: World, who: str) -> None:
    found = refusal(replica, world, who, world.own.allocations["active"])
    assert (found.status, found.code) == (401, "unauthenticated")
    assert found.correlation_id


@pytest.mark.parametrize("who", ["foreigner", "neighbour", "platform_admin", "platform_ops"])
def test_what_one_cannot_see_does_not_exist(replica: Replica, world: World, who: str) -> None:
    found = refusal(replica, world, who, world.own.allocations["active"])
    missing = refusal(replica, world, who, "al-" + "a" * 16)
    assert (found.status, found.code) == (missing.status, missing.code) == (404, "not_found")


def test_a_viewer_looks_but_does_not_connect(replica: Replica, world: World) -> None:
    found = refusal(replica, world, "viewer", world.own.allocations["active"])
    assert (found.status, found.extra["permission"]) == (403, "allocation.connect")


def test_a_token_that_does_not_cover_it(replica: Replica, world: World) -> None:
    editor = world.people["editor"].id
    narrow = replica.store.transact(
        lambda tx: tokens.insert_token(tx, editor, "n", ("allocation.read",), tx.now.replace(year=2200))
    )[1]
    with Client(replica.url, narrow) as asking, pytest.raises(ApiError) as refused:
        asking.allocations.connect(world.own.allocations["active"])
    assert refused.value.code == "token_scope"


@pytest.mark.parametrize("state", ["queued", "provisioning", "failed", "released"])
def test_a_machine_that_is_not_up(replica: Replica, world: World, state: str) -> None:
    found = refusal(replica, world, "editor", world.own.allocations[state])
    assert (found.status, found.code) == (409, "not_in_this_state")


def test_a_node_without_a_link(replica: Replica, world: World) -> None:
    heard = "UPDATE nodes SET last_seen_at = now() + make_interval(secs => :seconds) WHERE id = :id"

    def hear(seconds: int) -> None:
        values = {"id": world.agent.node_id, "seconds": seconds}
        replica.store.transact(lambda tx: tx.conn.execute(text(heard), values))

    hear(-3600)
    try:
        found = refusal(replica, world, "editor", world.own.allocations["active"])
        # The sweep may have been faster than we are; it says the same by the allocation's state.
        assert (found.status, found.code) == (409, "node_not_linked")
        assert found.hint
    finally:
        hear(86400)


def test_too_many_streams(replica: Replica, world: World) -> None:
    room = replica.app.state.streams.room
    editor = world.people["editor"].id
    room._taken[editor] = 10_000
    try:
        found = refusal(replica, world, "editor", world.own.allocations["active"])
    finally:
        del room._taken[editor]
    assert (found.status, found.code) == (429, "stream_refused")


def test_bytes_go_both_ways_until_the_machine_hangs_up(replica: Replica, world: World, node: Node) -> None:
    with joined(replica, world, node) as (user, far):
        user.send(b"\x00\xff hello")
        assert far.recv() == b"\x00\xff hello"
        user.end()
        assert far.recv() == b""
        far.send(b"one")
        far.send(b"two")
        far.close()
        assert user.receive() + user.receive() + user.receive() == b"onetwo"
    assert replica.app.state.streams.room._taken.total() == 0


def test_the_dial_says_where_from_and_which_machine(replica: Replica, world: World, node: Node) -> None:
    with client(replica, world) as asking, asking.allocations.connect(world.own.allocations["active"]) as user:
        dial = node.dial()
        assert (dial.id, dial.url, dial.source) == (world.own.allocations["active"], "", "127.0.0.1")
        with node.back(dial) as far:
            far.close(NODE_FAILED, "no such sshd")
            with pytest.raises(ApiError, match="no such sshd") as said:
                user.receive()
        assert said.value.code == "node_failed"


def test_a_user_who_leaves_ends_the_node_end(replica: Replica, world: World, node: Node) -> None:
    with joined(replica, world, node) as (user, far):
        user.send(b"bye")
        user.close()
        assert far.recv() == b"bye"
        with pytest.raises(ConnectionClosed):
            far.recv(timeout=10)


def test_a_node_that_vanishes_is_no_normal_end(replica: Replica, world: World, node: Node) -> None:
    with joined(replica, world, node) as (user, far):
        far.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ApiError, match="the connection was lost"):
            user.receive()


def test_a_ticket_is_good_once_and_for_its_node_only(replica: Replica, world: World, node: Node) -> None:
    with client(replica, world) as asking, asking.allocations.connect(world.own.allocations["active"]):
        dial = node.dial()
        assert _refused(node, dial, ticket="x" * 43) == 403
        with node.back(dial):
            assert _refused(node, dial) == 403
    with client(replica, world) as asking, asking.allocations.connect(world.own.allocations["active"]):
        dial = node.dial()
        assert _refused(node, dial, node=world.pool.node_id) == 403
        assert _refused(node, dial) == 403


def test_a_ticket_is_no_token_and_a_token_is_no_ticket(
    replica: Replica, world: World, node: Node, http: httpx.Client
) -> None:
    with client(replica, world) as asking, asking.allocations.connect(world.own.allocations["active"]):
        dial = node.dial()
        assert _refused(node, dial, ticket=world.people["editor"].secret) == 403
        found = http.get("/api/v1/whoami", headers={"Authorization": f"Bearer {dial.ticket}"})
        assert found.status_code == 401


def _refused(far: Node, dial: Dial, **other: Any) -> int:
    with pytest.raises(InvalidStatus) as refused:
        far.back(dial, **other)
    return refused.value.response.status_code


def test_a_revoked_token_ends_the_stream(replica: Replica, world: World, node: Node) -> None:
    editor = world.people["editor"].id
    token, secret = replica.store.transact(
        lambda tx: tokens.insert_token(tx, editor, "short", ("*",), tx.now.replace(year=2200))
    )
    with joined(replica, world, node, secret) as (user, far):
        far.send(b"hello")
        assert user.receive() == b"hello"
        assert replica.store.transact(tokens.revoke, editor, token.id)
        with pytest.raises(ApiError, match="expired or revoked") as said:
            user.receive()
        assert said.value.status == ACCESS_LOST - 4000
        with pytest.raises(ConnectionClosed):
            far.recv(timeout=10)


@pytest.mark.slow
def test_whatever_takes_access_away_is_seen_within_15_seconds(replica: Replica, world: World, node: Node) -> None:
    """Nobody says so: the server looks by itself."""
    expire = "UPDATE tokens SET expires_at = now() WHERE id = :id"
    editor = world.people["editor"].id
    token, secret = replica.store.transact(
        lambda tx: tokens.insert_token(tx, editor, "short", ("*",), tx.now.replace(year=2200))
    )
    with joined(replica, world, node, secret) as (user, _):
        replica.store.transact(lambda tx: tx.conn.execute(text(expire), {"id": token.id}))
        with pytest.raises(ApiError, match="expired or revoked"):
            user.receive()


@pytest.mark.slow
def test_a_node_that_does_not_dial_back_in_time(replica: Replica, world: World, node: Node) -> None:
    with client(replica, world) as asking, asking.allocations.connect(world.own.allocations["active"]) as user:
        dial = node.dial()
        with pytest.raises(ApiError, match="did not answer within 15 s") as said:
            user.receive()
        assert (said.value.code, said.value.status) == ("node_silent", 504)
        assert _refused(node, dial) == 403


def test_a_slow_reader_stops_the_writer_and_loses_nothing(replica: Replica, world: World, node: Node) -> None:
    total, block = 32 * MEGABYTE, bytes(range(256)) * 128
    written = 0

    def flood(far: ClientConnection) -> None:
        nonlocal written
        while written < total:
            far.send(block)
            written += len(block)
        far.close()

    with joined(replica, world, node) as (user, far):
        flooding = threading.Thread(target=flood, args=(far,), daemon=True)
        flooding.start()
        seen = -1
        while seen != written:  # until nothing moves any more
            seen = written
            flooding.join(0.5)
        assert 0 < written < total / 2, "the server keeps what the user has not read"
        got = 0
        while data := user.receive():
            assert data[0] == got % 256
            got += len(data)
        assert got == total
        flooding.join()


def test_two_ways_at_once(replica: Replica, world: World, node: Node) -> None:
    sent = bytes(range(256)) * 32 * 1024

    def echo(far: ClientConnection) -> None:
        while data := far.recv():
            far.send(data)
        far.close()

    with joined(replica, world, node) as (user, far):
        threading.Thread(target=echo, args=(far,), daemon=True).start()

        def send() -> None:
            for start in range(0, len(sent), 10_000):
                user.send(sent[start : start + 10_000])
            user.end()

        threading.Thread(target=send, daemon=True).start()
        got = b""
        while data := user.receive():
            got += data
        assert got == sent


def test_the_ticket_is_in_no_log(replica: Replica, world: World, node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="gpuaas")
    caplog.set_level("INFO", logger="uvicorn")
    with client(replica, world) as asking, asking.allocations.connect(world.own.allocations["active"]):
        dial = node.dial()
        with node.back(dial):
            pass
        _refused(node, dial)
    assert "stream wanted" in caplog.text
    assert "without completing handshake" not in caplog.text
    assert dial.ticket not in caplog.text


def test_nobody_there() -> None:
    with Client("http://127.0.0.1:1", "gpt_x") as asking, pytest.raises(Unreachable):
        asking.allocations.connect("train-1")
