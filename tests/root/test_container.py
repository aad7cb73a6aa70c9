"""A machine's container on the real kernel: what its people do every day works, and it is what we asked for."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.container.boot import View
from gpuaas.node.host.container.verify import verify
from gpuaas.node.host.mounts.mounts import Attribute, Propagation
from gpuaas.node.host.mounts.operations import Directory, FileSystem, Propagate, Unmount
from root.conftest import needs
from root.machines import Machine

pytestmark = needs("runc", "catatonit")
WAYS = ["exec", "enter"]
PACKAGE = """
mkdir -p p/DEBIAN p/usr/local/bin && cp /bin/true p/usr/local/bin/truth
printf 'Package: truth\\nVersion: 1\\nArchitecture: all\\nMaintainer: me\\nDescription: x\\n' >p/DEBIAN/control
printf '#!/bin/sh\\nsetcap cap_net_raw+ep /usr/local/bin/truth\\n' >p/DEBIAN/postinst && chmod 755 p/DEBIAN/postinst
dpkg-deb -b p truth.deb && apt-get install -y ./truth.deb && /usr/local/bin/truth && apt-get purge -y truth
"""
SSH = """
ssh-keygen -A && mkdir -p ~/.ssh && rm -f ~/.ssh/id && ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id
install -d -o gpu -g gpu ~gpu/.ssh && install -o gpu -g gpu ~/.ssh/id.pub ~gpu/.ssh/authorized_keys
/usr/sbin/sshd -p 2222 -o PidFile=/run/sshd.pid
ssh -tt -i ~/.ssh/id -o StrictHostKeyChecking=no -o ConnectionAttempts=10 -p 2222 gpu@127.0.0.1 'tty && sudo -n true'
kill $(cat /run/sshd.pid)
"""
DAILY = [
    "ping -c1 -W1 127.0.0.1",
    "su gpu -c 'ping -c1 -W1 ::1'",
    "su gpu -c 'sudo -n true'",
    "su gpu -c 'sudo -n -u gpu true'",
    "useradd -m joe && su joe -c 'touch ~/file' && userdel -r joe",
    "chroot / true",
    "python3 -c 'import multiprocessing as m; m.Lock(); m.Pool(2).map(abs, [1])'",
    "su gpu -c 'python3 -m http.server --bind 127.0.0.1 80 & sleep 1; kill $!'",
    "python3 -c 'import ctypes; assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0'",
    "touch /run/file /run/lock/file /dev/shm/file /tmp/file",
    f"cd $(mktemp -d) && {PACKAGE.strip()}",
    SSH,
]
ONLY_V2 = 'umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'


@pytest.fixture
def started(machine: Machine) -> Machine:
    machine.start()
    assert machine.nsenter("ip", "link", "set", "lo", "up").returncode == 0
    return machine


def test_it_is_what_was_asked_for(started: Machine) -> None:
    verify(started.pid, started.boot, started.layout)


@pytest.mark.parametrize("way", WAYS)
def test_what_people_do_every_day_works(started: Machine, way: str) -> None:
    run = getattr(started, way)
    failed = {line: done.output for line in DAILY if (done := run("/bin/sh", "-ec", line)).code != 0}
    assert failed == {}


def test_both_ways_in_lead_to_the_same(started: Machine) -> None:
    shown = r"Cap|Seccomp|NoNewPrivs|[UG]id|Groups|Max (open files|locked memory|core)"
    command = ("/bin/cat", "/proc/self/status", "/proc/self/limits")
    seen = [started.exec(*command), started.enter(*command)]
    rights = [[line for line in each.output.splitlines() if re.match(shown, line)] for each in seen]
    assert len(rights[0]) == 14
    assert rights[0] == rights[1]


def test_without_net_raw_there_would_be_no_ping(machine: Machine) -> None:
    """Why it is among the capabilities: the program has it on its file."""
    kinds = ("bounding", "permitted", "effective")
    fewer = {kind: lambda old: [each for each in old if each != "CAP_NET_RAW"] for kind in kinds}
    machine.start({"process": {"capabilities": fewer}})
    assert "Operation not permitted" in machine.exec("/bin/sh", "-c", "ping -V").output


def test_mounts_come_and_go_in_a_view(machine: Machine, work: Path) -> None:
    view = work / "view"
    view.mkdir(mode=0o755)
    machine.change(
        FileSystem("tmpfs", str(view), {"mode": "0755"}),
        Propagate(str(view), Propagation.SHARED),
        Directory(str(view / "data")),
    )
    machine.start(views=(View(str(view), "/volumes"),))
    verify(machine.pid, machine.boot, machine.layout)
    assert machine.exec("/bin/mountpoint", "/volumes/data").code != 0
    machine.change(FileSystem("tmpfs", str(view / "data")))
    assert machine.exec("/bin/mountpoint", "/volumes/data").code == 0
    assert machine.exec("/bin/umount", "/volumes/data").code != 0
    verify(machine.pid, machine.boot, machine.layout)
    machine.change(Unmount(str(view / "data")))
    assert machine.exec("/bin/mountpoint", "/volumes/data").code != 0
    machine.change(FileSystem("tmpfs", str(view / "data"), attributes=Attribute.NODEV))
    with pytest.raises(HostError, match="/volumes/data is not nosuid"):
        verify(machine.pid, machine.boot, machine.layout)


def test_on_a_host_with_cgroup_v2_alone(machine: Machine) -> None:
    """As far as runc can see; the hierarchy itself is the host's own."""
    layout = machine.layout
    if layout.v2 is None:
        pytest.skip("no cgroup v2 here")
    alone = Layout({}, layout.v2, layout.v2_controllers)
    within = ["unshare", "--mount", "sh", "-c", ONLY_V2, "sh"] if layout.v1 else []
    machine.start(within=within)
    verify(machine.pid, machine.boot, alone)
    other = replace(machine.boot, cgroup=machine.boot.cgroup.rpartition("/")[0])
    with pytest.raises(HostError, match="nothing decides which devices"):
        verify(machine.pid, other, alone)
