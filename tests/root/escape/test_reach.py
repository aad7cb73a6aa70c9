"""T14: what a machine reaches: not its host at any address, nor its neighbour, nor a cloud's metadata."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Tenant

pytestmark = needs("runc", "catatonit", "ssh", "nft")
PROBE = """
import json, socket, sys
targets, ports, paths, abstract = json.loads(sys.stdin.readline())
reached = []
for host in targets:
    for port in ports:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(socket.AF_INET, kind)
            s.settimeout(0.15)
            try:
                s.connect((host, port))
                s.send(b"?")
                if s.recv(1):
                    reached.append([host, port, kind])
            except OSError as error:
                if isinstance(error, ConnectionRefusedError):
                    reached.append([host, port, "refused"])
for path in [*paths, *("\\0" + name for name in abstract)]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(path)
            reached.append(path)
        except OSError:
            pass
for family, kind, protocol in ((2, 3, 1), (2, 3, 255), (17, 3, 3), (17, 2, 3), (10, 3, 58), (40, 1, 0)):
    try:
        socket.socket(family, kind, protocol)
        reached.append(["socket", family, kind, protocol])
    except OSError:
        pass
print(json.dumps(reached))
"""


# All ports of each host, and the same one of each host in a network. Whoever answers, be it by refusing, is named.
SCAN = """
import ipaddress, json, select, socket, sys, time
targets, networks, port_of_networks, at_once, seconds = json.loads(sys.stdin.readline())
answered, asked = [], 0

def connect(ends):
    global asked
    for first in range(0, len(ends), at_once):
        waiting = select.epoll()
        sockets = {}
        for end in ends[first : first + at_once]:
            s = socket.socket()
            s.setblocking(False)
            error = s.connect_ex(end)
            asked += 1
            if error not in (0, 115):
                s.close()
                if error == 111:
                    answered.append(["tcp", *end])
                continue
            sockets[s.fileno()] = (s, end)
            waiting.register(s.fileno(), select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP)
        while ready := waiting.poll(seconds):  # until nobody has answered for so long
            for number, _ in ready:
                s, end = sockets[number]
                waiting.unregister(number)
                if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, 111):
                    answered.append(["tcp", *end])
        for s, _ in sockets.values():
            s.close()

for network in networks:
    connect([(str(host), port_of_networks) for host in ipaddress.ip_network(network).hosts()])
for host in targets:
    connect([(host, port) for port in range(1, 65536)])
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(0.5)
    for port in range(1, 65536):
        try:
            s.sendto(b"?", (host, port))
            asked += 1
        except OSError:
            pass
        if port % 512 == 0:
            time.sleep(0.001)
    try:
        while True:
            answered.append(["udp", *s.recvfrom(16)[1]])
    except OSError:
        pass
print(json.dumps([asked, answered]))
"""
DATAGRAMS = """
import socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(("0.0.0.0", 8080))
while True: end.sendto(b"!", end.recvfrom(16)[1])
"""
SCAN_AT_ONCE, SCAN_SECONDS = 16384, 0.3
LINK_LOCAL = "169.254.0.0/16"
SOAK = "GPUAAS_SOAK_SECONDS" in os.environ  # `make soak`


@pytest.fixture
def listener() -> Iterator[int]:
    """On the host, at all its addresses: answers whoever comes, by TCP and by UDP."""
    with (
        socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as datagrams,
    ):
        port = int(server.getsockname()[1])
        datagrams.bind(("::", port))

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(b"!")

        def answer_datagrams() -> None:
            with suppress(OSError, TypeError):  # None is where nothing comes from: it was shut down
                while True:
                    datagrams.sendto(b"!", datagrams.recvfrom(16)[1])

        for each in (answer, answer_datagrams):
            threading.Thread(target=each, daemon=True).start()
        yield port
        for each in (server, datagrams):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def test_nothing_is_reached(tenant: Launch, listener: int) -> None:
    machine, other = tenant(), tenant()
    serving = other.session("python3 -m http.server 8080 2>&1 & echo there; wait")
    assert serving.stdout is not None
    assert serving.stdout.readline() == "there\n"
    address = other.ssh("hostname -I").stdout.split()[0]
    gateway = machine.ssh("ip route | awk '/default/ {print $3}'").stdout.strip()
    own = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    targets = [*(each for each in own if ":" not in each), gateway or "169.254.1.1", address, "169.254.169.254"]
    ports = [listener, 22, 5432, 8080, machine.body.ssh_port, other.body.ssh_port]
    sockets = [str(machine.live / "supervisor"), str(other.live / "supervisor"), "/run/gpuaas/supervisor", "/run/dbus"]
    abstract = f"gpuaas-escape-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(f"\0{abstract}")
        hidden.listen()
        # On the host it is reached: the probe knows how to ask.
        with socket.create_connection(("127.0.0.1", listener)) as connection:
            assert connection.recv(1) == b"!"
        text = json.dumps([targets, ports, sockets, [abstract]])
        machine.ssh("cat >/tmp/probe.py", text=PROBE)
        done = machine.ssh("sudo python3 /tmp/probe.py", text=text + "\n")
    serving.kill()
    serving.communicate()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert machine.ssh("ping -c1 -W1 " + address).returncode != 0


def test_no_port_of_the_host_or_the_neighbour_answers(tenant: Launch, listener: int) -> None:
    machine, other = tenant(), tenant()
    serving = other.session(f"python3 -m http.server 8080 2>&1 & python3 -c '{DATAGRAMS}' & echo there; wait")
    assert serving.stdout is not None
    assert serving.stdout.readline() == "there\n"
    address = other.ssh("hostname -I").stdout.split()[0]
    own = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    targets = [next(each for each in own if ":" not in each), address]
    networks = []
    if SOAK:
        targets.append(machine.ssh("ip route | awk '/default/ {print $3}'").stdout.strip() or "169.254.1.1")
        networks.append(LINK_LOCAL)
    asked, answered = _scan(machine, targets, networks)
    # From the neighbour to itself, the same scan finds every port: one is served, the others refuse. Of those for
    # datagrams it finds what is served.
    _, found = _scan(other, ["127.0.0.1"], ["127.0.0.0/30"])
    serving.kill()
    serving.communicate()
    assert answered == []
    assert asked > (2 * len(targets) + len(networks)) * 60_000
    every = [["tcp", "127.0.0.1", port] for port in range(1, 65536)]
    assert sorted(each for each in found if each[0] == "tcp") == sorted(
        [["tcp", "127.0.0.1", 80], ["tcp", "127.0.0.2", 80], *every]
    )
    assert ["udp", "127.0.0.1", 8080] in found


def _scan(machine: Tenant, targets: list[str], networks: list[str]) -> tuple[int, list[list[object]]]:
    machine.ssh("cat >/tmp/scan.py", text=SCAN)
    scan = f"ulimit -n {SCAN_AT_ONCE + 64}; exec python3 /tmp/scan.py"
    text = json.dumps([targets, networks, 80, SCAN_AT_ONCE, SCAN_SECONDS]) + "\n"
    done = machine.ssh(f"sudo bash -c '{scan}'", text=text, seconds=300)
    assert done.returncode == 0, done.stderr
    asked, answered = json.loads(done.stdout)
    return asked, answered


def test_a_forward_goes_no_further_than_the_machine(tenant: Launch, listener: int) -> None:
    """sshd opens forwarded connections in the machine, where only what a machine reaches is reached."""
    machine = tenant()
    session = machine.session("echo there; sleep 60", "-L", f"127.0.0.1:21790:127.0.0.1:{listener}")
    assert session.stdout is not None
    assert session.stdout.readline() == "there\n"
    with socket.create_connection(("127.0.0.1", 21790), timeout=5) as connection:
        assert connection.recv(1) == b""
    session.kill()
    session.communicate()
