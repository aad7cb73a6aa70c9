"""Cgroups on the real kernel. What this host does not have (v2 limits) is tried on a tree of plain files."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups import moves
from gpuaas.node.host.cgroups.cgroup import Cgroup, cgroup, present, remove_prefix
from gpuaas.node.host.cgroups.kill import freeze, kill, pids, thaw
from gpuaas.node.host.cgroups.layout import Layout, detect
from gpuaas.node.host.cgroups.limits import Limits, allow_devices, limit
from gpuaas.node.host.cgroups.usage import Usage, usage
from gpuaas.node.host.mounts import mounts

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.getuid() != 0, reason="makes cgroups")]
PREFIX = f"gpuaas-test-{os.getpid()}"
HOST = detect()
LAYOUTS = {
    "as it is": HOST,
    "v1 only": Layout(HOST.v1) if HOST.v1 else None,
    "v2 only": Layout({}, HOST.v2) if HOST.v2 else None,
}
MIB = 2**20
# Forks without end and ignores whatever can be ignored.
BOMB = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.setsid()
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.01)
"""


@pytest.fixture(params=[name for name, layout in LAYOUTS.items() if layout])
def group(request: pytest.FixtureRequest) -> Iterator[Cgroup]:
    layout = LAYOUTS[request.param]
    assert layout is not None
    made = cgroup(layout, "al-a", PREFIX)
    yield made
    kill(made)
    made.remove()
    remove_prefix(layout, PREFIX)
    assert not any((place / PREFIX).exists() for place in HOST.hierarchies())


@contextlib.contextmanager
def process(group: Cgroup, *argv: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Joins before it becomes the program, so that nothing of it is ever outside."""
    gate, go = os.pipe()
    child = subprocess.Popen(["sh", "-c", 'read go; exec "$0" "$@"', *argv], stdin=gate, stdout=subprocess.DEVNULL)
    try:
        group.join(child.pid)
        os.write(go, b"\n")
        yield child
    finally:
        os.close(gate)
        os.close(go)
        kill(group)
        child.wait()


def cpu_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def within(seconds: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_made_twice_and_removed_twice(group: Cgroup) -> None:
    group.remove()
    kill(group)
    assert not group.exists()
    for _ in range(2):
        group.ensure()
        group.child("session-1").ensure()
    assert present(group.layout, PREFIX) == ["al-a"]
    for _ in range(2):
        group.remove()
    assert not group.exists()
    assert present(group.layout, PREFIX) == []


def test_everything_inside_ends(group: Cgroup) -> None:
    group.ensure()
    session = group.child("session-1")
    session.ensure()
    with process(group, "sleep", "60") as first, process(session, "sleep", "60") as second:
        assert pids(group) == {first.pid, second.pid}
        assert pids(session) == {second.pid}
        kill(session)
        assert second.wait() == -signal.SIGKILL
        assert first.poll() is None
        kill(group)
        assert first.wait() == -signal.SIGKILL
    assert pids(group) == set()


def test_a_session_is_told_apart_in_one_hierarchy_and_limited_with_the_others(group: Cgroup) -> None:
    group.ensure()
    session = group.child("session-1")
    session.ensure()
    with process(session, "sleep", "60") as child:
        lines = Path(f"/proc/{child.pid}/cgroup").read_text().splitlines()
        ours = [path for line in lines if (path := line.split(":", 2)[2]).startswith(f"/{group.path}")]
        places = len(group.layout.hierarchies())
        assert sorted(ours) == sorted([f"/{session.path}", *(f"/{group.path}" for _ in range(places - 1))])
        kill(session)


def test_a_fork_bomb_ends(group: Cgroup) -> None:
    group.ensure()
    if "pids" in group.layout.v1 or "pids" in group.layout.v2_controllers:
        limit(group, Limits(pids=60))
    elif HOST.v1:
        (HOST.v1["pids"] / PREFIX).mkdir()
        fence = HOST.v1["pids"] / PREFIX / "al-a"
        fence.mkdir()
        (fence / "pids.max").write_text("60")
    with process(group, sys.executable, "-c", BOMB) as bomb:
        if HOST.v1 and not group.layout.v1:
            (HOST.v1["pids"] / PREFIX / "al-a/cgroup.procs").write_text(str(bomb.pid))
        assert within(10, lambda: len(pids(group)) >= 40)
        started = time.monotonic()
        kill(group)
        assert time.monotonic() - started < 5
        assert pids(group) == set()
    if HOST.v1 and not group.layout.v1:
        Cgroup(Layout({"pids": HOST.v1["pids"]}), group.path).remove()
        remove_prefix(HOST, PREFIX)


def test_frozen_processes_stand_still_and_can_be_ended(group: Cgroup) -> None:
    group.ensure()
    with process(group, "sh", "-c", "while :; do :; done") as child:
        assert within(10, lambda: cpu_ticks(child.pid) > 0)
        assert freeze(group)
        before = cpu_ticks(child.pid)
        assert not within(0.1, lambda: cpu_ticks(child.pid) > before)
        assert thaw(group)
        assert within(10, lambda: cpu_ticks(child.pid) > before)
        assert freeze(group)
        kill(group)
        assert child.wait(5) == -signal.SIGKILL


def test_a_process_that_joined_only_one_hierarchy_is_found(group: Cgroup) -> None:
    """What a killed OCI runtime leaves behind (V7)."""
    group.ensure()
    for directory in group.directories():
        child = subprocess.Popen(["sleep", "60"])
        (directory / "cgroup.procs").write_text(str(child.pid))
        kill(group)
        assert child.wait(5) == -signal.SIGKILL


def test_what_is_full_is_not_removed(group: Cgroup) -> None:
    group.ensure()
    with process(group, "sleep", "60"), pytest.raises(HostError, match="remove the cgroup"):
        group.remove(timeout_seconds=0.05)


needs_v1 = pytest.mark.skipif(not {"cpu", "memory", "pids"} <= set(HOST.v1), reason="this host has no v1 controllers")


@pytest.fixture
def limited() -> Iterator[Cgroup]:
    made = cgroup(HOST, "al-b", PREFIX)
    made.ensure()
    yield made
    kill(made)
    made.remove()
    remove_prefix(HOST, PREFIX)


@needs_v1
def test_limits_are_set_changed_and_lifted(limited: Cgroup) -> None:
    def value(controller: str, name: str) -> str:
        return (HOST.v1[controller] / limited.path / name).read_text().strip()

    for memory in (64, 256, 32):  # up and down: the order of the two writes differs
        limit(limited, Limits(cpus=1.5, cpuset="0", memory_bytes=memory * MIB, pids=20))
        limit(limited, Limits(cpus=1.5, cpuset="0", memory_bytes=memory * MIB, pids=20))
        assert value("memory", "memory.limit_in_bytes") == str(memory * MIB)
    assert value("cpu", "cpu.cfs_quota_us") == "150000"
    assert value("cpuset", "cpuset.cpus") == "0"
    assert value("pids", "pids.max") == "20"
    limit(limited, Limits())
    assert value("cpu", "cpu.cfs_quota_us") == "-1"
    assert value("pids", "pids.max") == "max"


@needs_v1
def test_too_much_memory_ends_the_process_and_is_counted(limited: Cgroup) -> None:
    limit(limited, Limits(memory_bytes=32 * MIB, pids=20))
    with process(limited, sys.executable, "-c", "x = b'x' * (200 * 2**20); input()") as child:
        assert child.wait(20) == -signal.SIGKILL
        assert usage(limited).out_of_memory_kills == 1


@needs_v1
def test_usage_counts_the_sessions_too(limited: Cgroup) -> None:
    session = limited.child("session-1")
    session.ensure()
    program = "x = b'x' * (30 * 2**20)\nimport time\nwhile time.process_time() < 0.2: pass\ntime.sleep(60)"
    with process(session, sys.executable, "-c", program):
        assert within(10, lambda: usage(limited).cpu_seconds > 0.15)
        now = usage(limited)
        assert now.memory_bytes > 30 * MIB
        assert now.pids >= 1
    assert usage(Cgroup(HOST, f"{PREFIX}/absent")) == Usage()


@needs_v1
def test_device_rules_stay_when_asked_again(limited: Cgroup) -> None:
    rules = ["c 1:3 rw", "c 120:16 rw"]
    assert allow_devices(limited, rules)
    child = HOST.v1["devices"] / limited.path / "child"
    child.mkdir()
    assert allow_devices(limited, rules)  # with a child, the kernel would refuse to begin anew
    listed = (child / "devices.list").read_text().splitlines()
    assert sorted(listed) == sorted(rules)


def test_v2_limits_on_plain_files(tmp_path: Path) -> None:
    controllers = frozenset({"cpu", "cpuset", "memory", "pids", "io"})
    layout = Layout({}, tmp_path, controllers)
    group = cgroup(layout, "al-a")
    for directory in (tmp_path, tmp_path / "gpuaas", tmp_path / group.path):
        directory.mkdir(exist_ok=True)
        for name in ("cgroup.subtree_control", "memory.swap.max"):
            (directory / name).touch()
    group.ensure()
    group.child("session-1").ensure()
    limit(group, Limits(cpus=2, cpuset="0-1", memory_bytes=MIB, swap_bytes=0, pids=100))
    written = {file.name: file.read_text() for file in (tmp_path / group.path).iterdir() if file.is_file()}
    assert written == {
        "cpu.max": "200000 100000",
        "cpuset.cpus": "0-1",
        "memory.max": str(MIB),
        "memory.swap.max": "0",
        "pids.max": "100",
        "cgroup.subtree_control": "",  # processes and sessions side by side
    }
    assert (tmp_path / "gpuaas/cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids +io"
    assert not allow_devices(group, ["c 1:3 rw"])
    files = {"cpu.stat": "usage_usec 1500000\n", "memory.current": "5000", "memory.stat": "inactive_file 1000\n"}
    files |= {"pids.current": "3", "memory.events": "oom 1\noom_kill 2\n", "io.stat": "8:0 rbytes=7 wbytes=9 rios=1\n"}
    for name, text in files.items():
        (tmp_path / group.path / name).write_text(text)
    assert usage(group) == Usage(1.5, 4000, 3, 2, 7, 9)


def test_a_limit_that_nothing_enforces_is_an_error() -> None:
    with pytest.raises(HostError, match="no memory controller"):
        limit(Cgroup(Layout({}, HOST.v2 or Path("/nowhere")), "x/y"), Limits(memory_bytes=MIB))


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\n", "a" * 65, "-x"])
def test_names_cannot_lead_elsewhere(name: str) -> None:
    with pytest.raises(HostError, match="not a name"):
        cgroup(HOST, name)
    with pytest.raises(HostError, match="not a name"):
        cgroup(HOST, "al-a").child(name)


@pytest.mark.skipif(HOST.v2 is None, reason="there is no cgroup v2 here")
def test_moves_become_quick_and_the_other_options_stay() -> None:
    assert HOST.v2 is not None
    before = mounts.at(HOST.v2)
    moves.make_quick(HOST)
    after = mounts.at(HOST.v2)
    assert before is not None
    assert after is not None
    assert moves.are_quick(HOST)
    assert after.super_options == before.super_options | {"favordynmods"}
    assert (after.options, after.propagation) == (before.options, before.propagation)
