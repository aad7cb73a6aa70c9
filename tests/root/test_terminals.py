"""Notices on the terminals of a real machine, and what a tenant can make of it."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.node.host.images.store import Images
from node.samples import ID
from root.conftest import needs
from root.linux import Keyed, Node, World

pytestmark = needs("runc", "catatonit", "nft", "ssh", "ssh-keygen")


@pytest.fixture
def world(node: Node, work: Path, base_image: Images) -> Iterator[World]:
    (work / "person").mkdir()
    made = World(node, Keyed(work / "person"))
    assert made.want(made.body).state == "ready"
    yield made
    made.want(None)
    made.node.host.shut_down()


class Terminal:
    """Somebody at a terminal on the machine."""

    def __init__(self, world: World, command: str) -> None:
        here, there = pty.openpty()
        line = world.person.ssh(world.body.ssh_port, command)
        line.insert(1, "-tt")
        self.process = subprocess.Popen(line, stdin=there, stdout=there, stderr=there, start_new_session=True)
        os.close(there)
        self._fd = here
        self.seen = b""

    def reads(self, text: bytes, seconds: float = 10.0) -> bool:
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if select.select([self._fd], [], [], 0.2)[0]:
                self.seen += os.read(self._fd, 4096)
        return text in self.seen

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self._fd)


def test_everybody_at_a_terminal_reads_it(world: World) -> None:
    host = world.node.host
    assert host.notify(ID, "hello") == 0
    terminals = [Terminal(world, "echo ready; sleep 60") for _ in range(2)]
    try:
        assert all(each.reads(b"ready") for each in terminals)
        assert host.notify(ID, "the machine is stopped in 10 minutes") == 2
        assert all(each.reads(b"*** the machine is stopped in 10 minutes ***") for each in terminals)
    finally:
        for each in terminals:
            each.close()


def test_a_terminal_whose_output_is_held_up_holds_up_nobody(world: World) -> None:
    """The tenant floods a terminal that nobody reads: the notice is dropped there, at once."""
    terminal = Terminal(world, "echo ready; yes no")
    try:
        assert terminal.reads(b"ready")
        time.sleep(1)
        started = time.monotonic()
        for _ in range(50):
            world.node.host.notify(ID, "x" * 400)
        assert time.monotonic() - started < 5
    finally:
        terminal.close()


def test_what_a_tenant_puts_in_the_place_of_its_terminals_is_not_written_to(world: World) -> None:
    """As root inside: another file, a link and a bind in the place of /dev/pts lead nowhere."""
    host = world.node.host
    world.ssh("touch /tmp/target && sudo ln -s /tmp/target /dev/pts-link; true")
    terminal = Terminal(world, "echo ready; sleep 60")
    try:
        assert terminal.reads(b"ready")
        mounted = world.ssh(
            "sudo sh -c 'mkdir -p /tmp/fake && touch /tmp/fake/0 && mount --bind /tmp/fake /dev/pts' ; echo $?"
        )
        told = host.notify(ID, "secret")
        assert told == (0 if mounted == "0" else 1)
        assert world.ssh("cat /tmp/fake/0 /tmp/target 2>/dev/null || true") == ""
    finally:
        terminal.close()


def test_a_stopped_machine_keeps_its_disk_and_comes_back(world: World) -> None:
    from msgspec.structs import replace

    world.ssh("echo kept > ~/file; setsid sleep 600 > /dev/null 2>&1 < /dev/null &")
    key_before = world.node.host.access_ensure(ID, world.body.keys)
    assert world.want(replace(world.body, stopped=True)).state == "ready"
    machine = world.node.host.container(ID)
    assert machine is None or not machine.running
    world.runner.observe()
    assert world.settle().state == "ready"
    assert not [fact for fact in world.facts() if fact[0] == "exited"]
    world.body = replace(world.body, restarts=1)
    assert world.want(world.body).state == "ready"
    assert world.ssh("cat ~/file") == "kept"
    assert world.node.host.access_ensure(ID, world.body.keys) == key_before
