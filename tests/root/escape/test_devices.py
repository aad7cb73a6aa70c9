"""T9 and T11: cgroups cannot be used against the host, and no device is within reach but those that were given."""

import os
import re
from collections.abc import Iterator

import pytest

from gpuaas.node.host.container.verify import verify
from gpuaas.node.host.gpus import simulated, simulated_cdi
from gpuaas.node.host.gpus.cdi_edits import OciEdits, oci, resolve
from gpuaas.node.host.gpus.cdi_read import read
from gpuaas.node.host.gpus.simulated import Simulated
from gpuaas.node.host.paths import Paths
from root.conftest import needs
from root.machines import Machine

pytestmark = needs("runc", "catatonit")
WAYS = ["exec", "enter"]

CGROUPS = r"""
fail() { echo "ESCAPED: $*"; }
for file in $(find /sys/fs/cgroup -name release_agent -o -name notify_on_release -o -name devices.allow \
    -o -name cgroup.procs -o -name memory.max -o -name memory.limit_in_bytes -o -name cgroup.subtree_control); do
    (echo 1 >"$file") 2>/dev/null && fail "wrote $file"
done
for directory in $(find /sys/fs/cgroup -maxdepth 1 -mindepth 1 -type d); do
    mkdir "$directory/mine" 2>/dev/null && fail "made $directory/mine"
done
for kind in cgroup cgroup2; do
    mount -t $kind none /mnt 2>/dev/null && fail "mounted $kind"
    mount -t $kind -o memory none /mnt 2>/dev/null && fail "mounted $kind memory"
done
mount -o remount,rw /sys/fs/cgroup 2>/dev/null && fail "remounted"
mount -o remount,rw /sys 2>/dev/null && fail "remounted /sys"
umount /proc/sys 2>/dev/null && fail "unmounted /proc/sys"
umount -l /proc 2>/dev/null && fail "unmounted /proc"
unshare --user --cgroup --mount true 2>/dev/null && fail "nested namespaces"
unshare --cgroup true 2>/dev/null && fail "a cgroup namespace"
nsenter --target 1 --mount true 2>/dev/null && fail "nsenter"
for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger /proc/sys/vm/drop_caches \
    /proc/sys/fs/binfmt_misc/register /sys/kernel/uevent_helper /proc/sys/net/ipv4/ip_forward; do
    (echo 1 >"$file") 2>/dev/null && fail "wrote $file"
done
echo finished
"""

DEVICES = r"""
import os, stat, sys
def tried(what, call):
    try:
        call()
    except OSError:
        return
    print("ESCAPED:", what)
def make(path, kind, major, minor):
    def call():
        os.mknod(path, kind | 0o666, os.makedev(major, minor))
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return call
numbers = [(1, 1), (1, 2), (1, 4), (1, 11), (4, 0), (4, 64), (5, 1), (7, 0), (8, 0), (10, 200), (10, 229), (10, 232),
           (10, 237), (195, 0), (195, 255), (252, 0), (254, 0), (259, 0), *((int(each), 0) for each in sys.argv[1:])]
for directory in ("/tmp", "/dev", "/run", "/dev/shm"):
    for major, minor in numbers:
        for kind in (stat.S_IFCHR, stat.S_IFBLK):
            tried(f"mknod in {directory} of {kind} {major}:{minor}", make(f"{directory}/node", kind, major, minor))
for name in ("mem", "kmem", "port", "kmsg", "vda", "sda", "nvme0n1", "loop0", "loop-control", "fuse", "kvm", "net/tun"):
    tried(name, lambda: os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))
print("finished")
"""


@pytest.fixture
def gpus(paths: Paths) -> Iterator[Simulated]:
    """Before the machine: its mount namespace has what was mounted when it was made."""
    made = simulated.ensure(paths.state / "simulated", "2xH100", "node-a")
    simulated_cdi.write(made)
    yield made
    simulated.remove(made.root)


def given(gpus: Simulated, number: int) -> OciEdits:
    return oci(resolve(read([gpus.root / "cdi"]), [gpus.gpus()[number]]))


@pytest.mark.parametrize("way", WAYS)
def test_cgroups_are_no_way_out(machine: Machine, way: str) -> None:
    machine.start()
    done = getattr(machine, way)("/bin/sh", "-s", text=CGROUPS)
    assert done.output.splitlines() == ["finished"]


@pytest.mark.parametrize("way", WAYS)
def test_no_device_can_be_made_or_opened(gpus: Simulated, machine: Machine, way: str) -> None:
    machine.start(gpus=given(gpus, 0))
    done = getattr(machine, way)("/usr/bin/python3", "-", str(gpus.plan.major), text=DEVICES)
    assert done.output.splitlines() == ["finished"]


@pytest.mark.parametrize("way", WAYS)
def test_a_machine_opens_its_own_gpu_and_no_other(gpus: Simulated, machine: Machine, way: str) -> None:
    """The other's node is put there by hand, as if a runtime had been tricked: the cgroup still says no."""
    foreign = str(gpus.root / "dev/gpu1")
    node = {"destination": "/dev/foreign", "type": "bind", "source": foreign, "options": ["bind"]}
    machine.start({"mounts": lambda old: [*old, node]}, gpus=given(gpus, 0))
    run = getattr(machine, way)
    # No driver behind a simulated one: the kernel has let it pass.
    assert "No such device or address" in run("/bin/cat", "/dev/nvidia0").output
    assert "Operation not permitted" in run("/bin/cat", "/dev/foreign").output


def test_a_machine_with_a_gpu_is_what_was_asked_for(gpus: Simulated, machine: Machine) -> None:
    machine.start(gpus=given(gpus, 1))
    verify(machine.pid, machine.boot, machine.layout)
    mine = machine.exec("/bin/sh", "-c", "ls /dev").output.split()
    assert re.findall(r"nvidia\d", " ".join(mine)) == ["nvidia0"]
    assert not os.path.exists("/dev/nvidia0")
