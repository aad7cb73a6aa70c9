"""The check that runs after every root test: does it see what it is there for?"""

import os
import signal
import subprocess
from pathlib import Path

from gpuaas.node.host.limits import LIMITS
from gpuaas.node.host.mounts import loops, mounts, pins
from gpuaas.node.host.mounts.mounts import Attribute
from root.conftest import left, look, needs, processes

# A daemon as it should not be: its parent is gone, and its session is its own.
DAEMON = "setsid sh -c 'echo $$; exec sleep 60' >{} 2>&1 </dev/null & sleep 0.2"


def test_nothing_is_nothing() -> None:
    assert left(look(), processes(), 0) == {}


def test_a_mount_is_seen(work: Path) -> None:
    before, running = look(), processes()
    fd = mounts.filesystem("tmpfs", {}, Attribute.NONE)
    mounts.attach(fd, work)
    os.close(fd)
    assert [str(work) in mount for mount in left(before, running, 0)["mounts"]] == [True]
    mounts.unmount(work)
    assert left(before, running, 0) == {}


@needs("mkfs.ext4")
def test_a_loop_device_is_seen(work: Path) -> None:
    (work / "layer").mkdir()
    LIMITS["image"].prepare(work / "layer", 64)
    before, running = look(), processes()
    with loops.attached(work / "layer/disk.ext4"):
        assert left(before, running, 0)["loop devices"] == {str(work / "layer/disk.ext4")}
    loops.make_direct()
    assert left(before, running) == {}


def test_a_daemon_is_seen(work: Path) -> None:
    before, running = look(), processes()
    subprocess.run(["sh", "-c", DAEMON.format(work / "pid")], check=True, env={"PATH": os.environ["PATH"]})
    pid = int((work / "pid").read_text())
    assert left(before, running, 0)["processes"] == {f"{pid} sleep 60"}
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert left(before, running) == {}


def test_a_cgroup_is_seen() -> None:
    before, running = look(), processes()
    hierarchy = next(each.target for each in mounts.mounts() if each.filesystem in ("cgroup", "cgroup2"))
    path = Path(hierarchy) / "gpuaas-test-leak"
    path.mkdir()
    assert left(before, running, 0)["cgroups"] == {str(path)}
    path.rmdir()
    assert left(before, running) == {}


@needs("nft", "ip")
def test_parts_of_a_network_are_seen(work: Path) -> None:
    before, running = look(), processes()
    subprocess.run(["ip", "link", "add", "gpuaas-leak", "type", "veth", "peer", "gpuaas-peer"], check=True)
    subprocess.run(["nft", "add table inet gpuaas_leak"], check=True)
    pins.prepare(work / "pins")
    with open("/proc/self/ns/net") as namespace:
        pins.hold(work / "pins/net", namespace.fileno())
    found = left(before, running, 0)
    assert found["network links"] == {"/sys/class/net/gpuaas-leak", "/sys/class/net/gpuaas-peer"}
    assert found["nft tables"] == {"table inet gpuaas_leak"}
    assert [f"{work}/pins/net (nsfs nsfs)" in found["mounts"], len(found["mounts"])] == [True, 2]
    subprocess.run(["ip", "link", "delete", "gpuaas-leak"], check=True)
    subprocess.run(["nft", "delete table inet gpuaas_leak"], check=True)
    pins.drop(work / "pins/net")
    pins.clear(work / "pins")
    assert left(before, running) == {}
