"""T6: nobody in a machine holds, or sees for a moment, anything of the host's: files, memory, command lines."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.container.verify import verify
from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Tenant
from root.machines import Machine

pytestmark = needs("runc", "catatonit", "ssh")
PROBE = Path(__file__).with_name("handles.py").read_text()
CONNECTIONS = 200
SCAN_SECONDS = 10
FIRST_NUMBERS, HOMES = 64, 6
OF_ITS_OWN = ("pipe:", "socket:", "/dev/null", "/dev/pts/", "/dev/ptmx", "/dev/tty", "anon_inode:")


def words(tenant: Tenant) -> list[str]:
    """Of the host's: where things are, the agent's program and its modules."""
    paths = tenant.node.config.paths
    return [str(paths.state), str(paths.run), sys.prefix, "gpuaas.node", "python -", "mounts.enter", "PYTEST"]


def test_nothing_of_the_host_is_open(tenant: Launch) -> None:
    machine = tenant()
    of_a_login = machine.ssh("readlink /proc/$$/fd/* /proc/$$/cwd /proc/$$/root; pwd")
    *files, cwd, root, pwd = of_a_login.stdout.splitlines()
    assert (cwd, root, pwd) == ("/home/gpu", "/", "/home/gpu")
    assert all(file.startswith(OF_ITS_OWN) for file in files if file != "/proc")
    # By the kernel's word, of everybody in there: what tells of files outside is on a device that is not theirs.
    session = machine.session("echo there; sleep 100")
    assert session.stdout is not None
    assert session.stdout.readline() == "there\n"
    uids = range(machine.body.uid_base, machine.body.uid_base + 65536)
    checked = 0
    for process in Path("/proc").glob("[0-9]*"):
        if not _owned(process, uids):
            continue
        checked += 1
        for handle in process.glob("fd/*"):
            target = os.readlink(handle)
            # Devices and tools are seen from here by their path inside.
            assert target.startswith(OF_ITS_OWN), f"{(process / 'comm').read_text()}: {target}"
        assert os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt")
    assert checked >= 4  # init, sshd twice, a shell
    session.kill()
    session.communicate()


def test_nothing_of_the_host_shows_while_somebody_enters(tenant: Launch) -> None:
    machine = tenant()
    files = 'read -r words; echo "$words" >/tmp/words; cat >/tmp/watch'
    watch = machine.session(f"{files}; exec sudo python3 /tmp/watch {SCAN_SECONDS} /tmp/words")
    assert watch.stdin is not None
    assert watch.stdout is not None
    watch.stdin.write(f"{json.dumps(words(machine))}\n{PROBE}")
    watch.stdin.close()
    assert watch.stdout.readline() == "there\n"
    began = time.monotonic()
    made = 0
    while made < CONNECTIONS and time.monotonic() - began < SCAN_SECONDS - 1:
        with socket.create_connection(("127.0.0.1", machine.body.ssh_port)) as connection:
            connection.settimeout(10)
            assert connection.recv(4) == b"SSH-"
        made += 1
    found = json.loads(watch.stdout.readline())
    watch.wait(10)
    watch.stdout.close()
    assert found["found"] == []
    assert found["processes"] > made // 4, "too few were seen to say anything"
    assert made > 50


@pytest.mark.parametrize("way", ["exec", "enter"])
def test_whoever_enters_has_nothing_of_the_hosts_open(machine: Machine, way: str) -> None:
    """Of a program that runc runs inside, and of one that enters as a session does."""
    machine.start()
    script = "readlink /proc/$$/fd/* /proc/$$/cwd /proc/$$/root"
    *files, cwd, root = getattr(machine, way)("/bin/sh", "-c", script).output.splitlines()
    assert (cwd, root) == ("/", "/")
    assert [file for file in files if not file.startswith((*OF_ITS_OWN, "/memfd:stdin"))] == []


def test_at_a_terminal_nothing_of_the_hosts_is_open(tenant: Launch) -> None:
    machine = tenant()
    script = "readlink /proc/$$/fd/* /proc/$$/cwd; tty"
    done = subprocess.run(
        machine.command("-tt", "gpu@127.0.0.1", script), stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    *files, cwd, terminal = done.stdout.decode().split()
    assert cwd == "/home/gpu"
    assert terminal.startswith("/dev/pts/")
    assert set(files) == {terminal}


def test_no_directory_of_the_hosts_is_entered_by_a_number(machine: Machine) -> None:
    """CVE-2024-21626: the directory to start in is one that somebody has left open."""
    inside = 0
    for number in range(FIRST_NUMBERS):
        try:
            machine.start({"process": {"cwd": f"/proc/self/fd/{number}"}})
        except AssertionError:  # runc refuses it
            machine.end()
            continue
        with pytest.raises(HostError, match="not in its root"):
            verify(machine.pid, machine.boot, machine.layout)
        inside += 1
        machine.end()
    machine.start()
    verify(machine.pid, machine.boot, machine.layout)
    assert inside < FIRST_NUMBERS


def test_nobody_logs_in_to_a_directory_by_its_number(tenant: Launch) -> None:
    """The same by the tenant's own means: the home of who logs in is what sshd has open."""
    machine = tenant()
    for number in range(3, 3 + HOMES):
        machine.root(f"sed -i 's,^\\(gpu:.*:\\)[^:]*:\\([^:]*\\)$,\\1/proc/self/fd/{number}:\\2,' /etc/passwd")
        done = machine.ssh("pwd; readlink /proc/$$/cwd; ls /proc/$$/cwd/../../../../etc/hostname")
        assert not any(word in done.stdout for word in words(machine)), done.stdout
        assert done.stdout.splitlines()[1] == "/", done.stdout


def _owned(process: Path, uids: range) -> bool:
    try:
        return process.stat().st_uid in uids or any(
            int(line.split()[1]) in uids
            for line in (process / "status").read_text().splitlines()
            if line.startswith("Uid:")
        )
    except OSError:
        return False
