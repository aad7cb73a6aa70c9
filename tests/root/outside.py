"""The world outside a machine's host, and what is said from inside machines, for tests of the network."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

from gpuaas.node.host.network.network import Network

HOST, OUTSIDE = "203.0.113.1", "203.0.113.2"
METADATA, DENIED = "169.254.169.254", "10.99.0.5"
PORT = 7777

# Answers on every address, over TCP and UDP, with the address of whoever asks.
SERVER = """
import socket, sys, threading
port = int(sys.argv[1])
tcp = socket.create_server(("0.0.0.0", port))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO: to answer from the address that was asked
udp.bind(("0.0.0.0", port))
def datagrams():
    while True:
        data, asked, _, peer = udp.recvmsg(2000, 100)
        print("udp", peer[0], peer[1], data.decode(), flush=True)
        source = bytes(4) + asked[0][2][8:12] + bytes(4)
        udp.sendmsg([peer[0].encode()], [(socket.IPPROTO_IP, 8, source)], 0, peer)
def connections():
    while True:
        connection, peer = tcp.accept()
        threading.Thread(target=talk, args=(connection, peer), daemon=True).start()
def talk(connection, peer):
    connection.sendall(peer[0].encode())
    while data := connection.recv(2000):
        connection.sendall(data)
for loop in (datagrams, connections):
    threading.Thread(target=loop, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""

# Tries everything at once: {"tcp 1.2.3.4 80": what the server there said, or null}.
CLIENT = """
import json, socket, sys, threading
found = {}
def attempt(text):
    kind, host, port = text.split()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as end:
            end.settimeout(float(sys.argv[1]))
            end.connect((host, int(port)))
            if kind == "udp":
                end.send(b"hello")
            found[text] = end.recv(2000).decode()
    except OSError:
        found[text] = None
threads = [threading.Thread(target=attempt, args=(text,)) for text in sys.argv[2:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(found))
"""


def inside(network: Network, id: str, command: list[str], *, user: bool = False, **more: object) -> "Popen[str]":
    """As the host's root, who has more to say there than any tenant; or as the machine's, who cannot run our Python."""
    handles = network.open(id)
    entered = [f"--user=/proc/self/fd/{handles[0]}"] if user else []
    enter = ["nsenter", *entered, f"--net=/proc/self/fd/{handles[1]}", "--", *command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **more}
    process: Popen[str] = Popen(enter, pass_fds=handles, **pipes)  # type: ignore[call-overload]
    for handle in handles:
        os.close(handle)
    return process


def output(network: Network, id: str, command: str, *, user: bool = False) -> str:
    return inside(network, id, command.split(), user=user).communicate()[0]


def python(network: Network, id: str, code: str, *arguments: str) -> str:
    process = inside(network, id, [sys.executable, "-I", "-c", code, *arguments], stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def reach(network: Network, id: str, *targets: str, seconds: float = 1.0) -> dict[str, str | None]:
    """What answered to a machine, of targets such as `tcp 192.0.2.1 80`."""
    found: dict[str, str | None] = json.loads(python(network, id, CLIENT, str(seconds), *targets))
    return found


def reach_from_outside(world: "Popen[str]", *targets: str) -> dict[str, str | None]:
    command = ["nsenter", f"--net=/proc/{_only_child(world.pid)}/ns/net", sys.executable, "-I", "-c", CLIENT, "1"]
    done = subprocess.run([*command, *targets], capture_output=True, text=True, check=True)
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


def reach_from_host(*targets: str) -> dict[str, str | None]:
    done = subprocess.run([sys.executable, "-c", CLIENT, "1", *targets], capture_output=True, text=True, check=True)
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@contextmanager
def serving(process: "Popen[str]") -> Iterator["Popen[str]"]:
    try:
        assert line(process) == "ready"
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "Popen[str]", seconds: float = 20) -> str:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], seconds)[0]:
        raise TimeoutError("it says nothing")
    return process.stdout.readline().rstrip()


def tell(process: "Popen[str]", text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def on_host(port: int = PORT) -> "Popen[str]":
    return Popen(server(port), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def server(port: int = PORT) -> list[str]:
    return [sys.executable, "-I", "-c", SERVER, str(port)]


@contextmanager
def outside() -> Iterator["Popen[str]"]:
    """A neighbour of this host that answers at its own address, at a denied one and where clouds have metadata.

    It knows the way back to machines: were there no NAT and no filter, everything would be reachable both ways.
    """
    command = ["unshare", "--net", "--kill-child", "--fork", *server()]
    process = Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with serving(process):
        pid = _only_child(process.pid)
        _ip("link add gpuaas-out type veth peer name out netns", str(pid))
        try:
            _ip(f"addr add {HOST}/24 dev gpuaas-out")
            _ip("link set gpuaas-out up")
            there = f"nsenter --net=/proc/{pid}/ns/net ip"
            for words in (
                f"addr add {OUTSIDE}/24 dev out",
                "link set out up",
                "link set lo up",
                f"addr add {METADATA}/32 dev lo",
                f"addr add {DENIED}/32 dev lo",
                f"route add default via {HOST}",
            ):
                subprocess.run([*there.split(), *words.split()], check=True)
            for address in (METADATA, DENIED):
                _ip(f"route add {address}/32 via {OUTSIDE}")
            yield process
        finally:
            _ip("link delete gpuaas-out")


def _only_child(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read().split()[0])


def _ip(words: str, *more: str) -> None:
    subprocess.run(["ip", *words.split(), *more], check=True)
