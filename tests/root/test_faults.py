"""What goes wrong on real machines: full disks, taken ports, torn files, the dying, reboots (F14-F16, F20, F21, F32).

Always the same claims: it is said clearly, nothing is half-made, and it heals when the fault has gone.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.config import AgentConfig
from gpuaas.node.host.cgroups import layout
from gpuaas.node.host.cgroups.cgroup import Cgroup
from gpuaas.node.host.cgroups.kill import freeze, kill
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.mounts import mounts
from gpuaas.node.main import clear_host
from node.samples import ID
from root.conftest import CACHE, close_directories, needs
from root.linux import Keyed, Node, World
from root.sweep import Agent

pytestmark = needs("runc", "catatonit", "nft", "ssh", "ssh-keygen")
GARBAGE = (b"", b"\0" * 64, b'{"gpus": ["')


@pytest.fixture
def person(work: Path) -> Keyed:
    return Keyed(work)


@pytest.fixture
def make(work: Path, base_image: Images, person: Keyed) -> Iterator[Callable[..., World]]:
    """A node with a special configuration. Gone afterwards."""
    made: list[World] = []

    def world(**more: object) -> World:
        made.append(World(Node(work, CACHE / "images", **more), person))
        return made[-1]

    yield world
    for each in made:
        each.node.host.shut_down()


@pytest.fixture
def world(make: Callable[..., World]) -> World:
    return make()


@pytest.fixture
def own_disk(work: Path) -> Iterator[Path]:
    """A state directory on a disk of its own, as large as a node's must be. It takes a few MiB."""
    state, image = work / "state", work / "disk"
    state.mkdir()
    with image.open("wb") as file:
        file.truncate(12 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(state)], check=True)
    yield state
    close_directories(state)
    subprocess.run(["umount", str(state)], check=True)


def why(world: World) -> str:
    condition = world.settle()
    assert condition.failure is not None, condition
    return f"{condition.failure.code}: {condition.failure.detail}"


def gone(world: World) -> None:
    assert world.release().state == "gone"
    assert world.node.host.present() == []


# the node's disk


def test_a_full_disk_fails_the_launch_and_heals(own_disk: Path, make: Callable[..., World]) -> None:
    world = make(disk_mib=64)
    filler = own_disk / "filler"
    free = os.statvfs(own_disk).f_bavail * os.statvfs(own_disk).f_frsize
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - (64 << 10))  # enough for the journal, not for a disk
    world.launch()
    assert why(world).startswith("rootfs_failed")
    assert "No space left" in why(world)
    gone(world)  # without room for anything: this is how some comes back
    filler.unlink()
    # A GPU whose scrub had no room stays marked until one succeeds.
    assert [scrub.clean for scrub in world.node.host.devices_remove(ID, world.body.slots[0].gpus)] == [True]
    assert world.launch().state == "ready"
    assert world.ssh("echo", "hello") == "hello"
    gone(world)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_damaged_files_never_stop_the_agent(world: World, garbage: bytes) -> None:
    """Read by a fresh agent: it goes on, or says what is damaged; a restart heals what it can, a release everything."""
    paths = world.node.config.paths
    live, state = paths.live(ID), paths.state
    heals = {live / "machine.json", live / "keys.json", live / "sessions.json", state / "news/x.news"}
    by_restart = {state / "devices" / ID}
    never = {state / "host-keys" / ID: "host key", state / "allocations" / f"{ID}.json": "record"}
    assert world.launch().state == "ready"
    for file in (*heals, *by_restart, *never):
        before = file.read_bytes() if file.exists() else b""
        file.write_bytes(garbage)
        world.agent()
        condition = world.settle()
        if file in by_restart and condition.state != "ready":
            assert "restart" in why(world)
            condition = world.restart()
        if file in never:
            assert "damaged" in why(world)
            assert never[file] in why(world)
            file.write_bytes(before)
            world.wait()
            condition = world.settle()
        assert condition.state == "ready", f"{file}: {condition}"
        assert world.ssh("echo", "hello") == "hello", file
    for file in (*by_restart, *never):
        file.write_bytes(garbage)
    gone(world)


def test_a_second_agent_is_refused(world: World) -> None:
    config = world.node.config
    disk = FileDisk(config.paths.state)
    disk.hold()
    with pytest.raises(HostError, match="another agent is using it"):
        clear_host(AgentConfig("http://localhost", config.paths.state, "test-node", run_dir=config.paths.run))
    disk.close()


# the machine's limits


def test_a_machine_has_a_limited_number_of_processes(make: Callable[..., World]) -> None:
    world = make(pids=100)
    world.launch(memory_mib=512)
    bomb = "for i in $(seq 200); do sleep 30 >/dev/null 2>&1 & done"
    said = world.ssh(f"sh -c '{bomb}' 2>&1 | tail -1")
    assert "fork" in said or "Resource temporarily unavailable" in said, said
    sample = world.node.host.sample(ID)
    assert sample is not None
    assert sample.processes <= 100
    assert world.restart().state == "ready"
    assert world.ssh("echo", "hello") == "hello"
    gone(world)


def test_a_machine_without_memory_hurts_only_itself(world: World) -> None:
    world.launch(memory_mib=128)
    first = world.machine().first
    hungry = "head -c 400M /dev/zero | tail -c 399M | wc -c; echo survived; cat"
    session = subprocess.Popen(world.person.ssh(world.body.ssh_port, hungry), **_piped())
    assert session.stdout is not None
    assert [session.stdout.readline() for _ in range(2)] == [b"0\n", b"survived\n"]
    sample = world.node.host.sample(ID)
    assert sample is not None
    assert sample.oom_kills > 0
    assert world.machine().first == first
    assert first.lives
    session.communicate()
    assert world.settle().state == "ready"
    gone(world)


# its port


def test_a_taken_port_is_named_and_taken_again_when_it_is_free(world: World) -> None:
    port = world.body.ssh_port
    with socket.create_server(("", port)):
        world.launch()
        assert "network_failed" in why(world)
        assert f"port {port} is in use" in why(world)
    assert world.restart().state == "ready"
    end(world)
    with socket.create_server(("", port)):
        assert f"port {port} is in use" in why(world)
    world.wait()
    assert world.settle().state == "ready"  # it was good once: tried again for ever
    gone(world)


# the OCI runtime


@pytest.mark.parametrize(
    ("script", "said"),
    [(None, "ended with 127"), ("echo broken; exit 1", "broken"), ("sleep 60", "did not end in time")],
)
def test_a_broken_runtime_is_named_and_leaves_nothing(
    make: Callable[..., World], work: Path, script: str | None, said: str
) -> None:
    runtime = work / "runtime"
    if script is not None:
        runtime.write_text(f"#!/bin/sh\n{script}\n")
        runtime.chmod(0o755)
    world = make(runtime=str(runtime), start_seconds=1.0)
    world.launch()
    assert "container_failed" in why(world)
    assert said in why(world)
    runtime.unlink(missing_ok=True)
    runtime.symlink_to(shutil.which("runc") or "runc")
    assert world.restart().state == "ready"
    gone(world)


# who dies


def test_a_killed_machine_is_started_again(world: World) -> None:
    world.launch()
    before = world.machine().first
    os.kill(before.pid, signal.SIGKILL)
    _until(lambda: not before.lives)
    assert world.settle().state == "ready"
    assert world.machine().first != before
    assert world.facts() == [("exited", "died")]
    assert ended(world) == ["its first process was killed by signal 9 (SIGKILL)"]
    assert world.ssh("echo", "hello") == "hello"
    gone(world)


def test_it_is_told_that_a_machine_ran_out_of_memory(world: World) -> None:
    world.launch()
    hungry = world.person.ssh(world.body.ssh_port, "python3 -c 'bytearray(1 << 30)'")
    assert subprocess.run(hungry, capture_output=True, timeout=60).returncode != 0
    first = world.machine().first
    os.kill(first.pid, signal.SIGKILL)
    _until(lambda: not first.lives)
    assert world.settle().state == "ready"
    assert "it ran out of memory, 1 of its processes" in ended(world)[-1]
    gone(world)


def test_a_killed_supervisor_is_replaced_and_nobody_inside_notices(world: World) -> None:
    world.launch()
    before = world.machine()
    session = subprocess.Popen(world.person.ssh(world.body.ssh_port, "echo in; cat"), **_piped())
    assert session.stdout is not None
    assert session.stdin is not None
    assert session.stdout.readline() == b"in\n"
    os.kill(before.supervisor.pid, signal.SIGKILL)
    _until(lambda: not before.supervisor.lives)
    assert world.settle().state == "ready"
    assert world.machine().first == before.first
    assert world.machine().supervisor != before.supervisor
    session.stdin.write(b"still here\n")
    session.stdin.flush()
    assert session.stdout.readline() == b"still here\n"
    assert world.ssh("echo", "hello") == "hello"
    gone(world)
    assert session.wait(10) != 0
    session.communicate()


def test_a_frozen_machine_is_released_at_once(world: World) -> None:
    """As an agent leaves it that was killed while it ended everything in there."""
    world.launch()
    for name in (ID, f"{ID}_host"):
        freeze(Cgroup(layout.detect(), f"{world.node.config.prefix}/{name}"))
    began = time.monotonic()
    gone(world)
    assert time.monotonic() - began < 10


def test_a_stopped_agent_stops_nobody_else(world: World) -> None:
    world.launch()
    world.node.host.close()
    agent = Agent(world.node.config)
    os.kill(agent.pid, signal.SIGSTOP)
    assert world.ssh("echo", "hello") == "hello"
    os.kill(agent.pid, signal.SIGCONT)
    agent.close()
    world.agent()
    gone(world)


def test_a_reboot_brings_the_machine_back_as_it_was(world: World) -> None:
    host_key = world.launch().host_key
    world.ssh("echo kept > file")
    reboot(world)
    condition = world.settle()
    assert (condition.state, condition.host_key) == ("ready", host_key)
    assert world.ssh("cat", "file") == "kept"
    assert world.facts()[-1][0] == "exited"
    gone(world)


def ended(world: World) -> list[str]:
    return [fact.data.get("ended", "") for fact in world.runner.journal.facts() if fact.kind == "exited"]


def end(world: World) -> None:
    """Everything of all machines, and who looks after them."""
    kill(Cgroup(layout.detect(), world.node.config.prefix))
    world.reap()


def reboot(world: World) -> None:
    """As far as it can be played: nothing runs, nothing is mounted, the run directory and the filter are empty."""
    config = world.node.config
    world.node.host.close()
    end(world)
    Cgroup(layout.detect(), config.prefix).remove()
    for mount in reversed(mounts.mounts()):
        if f"{mount.target}/".startswith(f"{config.paths.run}/"):
            mounts.unmount(Path(mount.target), lazy=True)
    shutil.rmtree(config.paths.run)
    subprocess.run(["nft", "delete", "table", "inet", config.prefix], check=True)
    world.agent()


def _piped() -> dict[str, int]:
    return {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
