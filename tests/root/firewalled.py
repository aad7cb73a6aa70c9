"""Runs in a network namespace of its own, as a host between a machine and the world.

Reads rule sets, and says of each whether a packet of the machine gets an answer, and what doctor says. Where nft can
do what doctor says to do, it does it, and says whether a packet gets an answer then.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from gpuaas.node.host.network import checks

MACHINE, WORLD = "10.66.1.2", "10.66.2.2"
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.66.2.2", 7000))
print("there", flush=True)
while True:
    data, where = s.recvfrom(16)
    s.sendto(data, where)
"""
ASK = """
import socket, sys
for line in sys.stdin:
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # from another port: a new connection
        s.settimeout(0.4)
        s.connect(("10.66.2.2", 7000))
        s.send(b"?")
        print(s.recv(1) == b"?", flush=True)
    except OSError:
        print(False, flush=True)
"""


def run(*words: str, text: str = "") -> None:
    subprocess.run(words, input=text, text=True, check=True, timeout=20)


@contextmanager
def far(link: str, here: str, there: str, script: str) -> Iterator[subprocess.Popen[str]]:
    """Another network namespace at the end of a link, with a program in it."""
    words = ["unshare", "--net", sys.executable, "-c", f"import sys; sys.stdin.readline()\n{script}"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        own, deadline = Path("/proc/self/ns/net").readlink(), time.monotonic() + 20
        while Path(f"/proc/{process.pid}/ns/net").readlink() == own:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(process.pid))
        run("ip", "address", "add", f"{here}/24", "dev", link)
        run("ip", "link", "set", link, "up")
        inside = ["nsenter", f"--net=/proc/{process.pid}/ns/net", "ip"]
        run(*inside, "address", "add", f"{there}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "route", "add", "default", "via", here)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()


def answered(machine: subprocess.Popen[str]) -> bool:
    assert machine.stdin is not None
    assert machine.stdout is not None
    machine.stdin.write("ask\n")
    machine.stdin.flush()
    return machine.stdout.readline() == "True\n"


def main() -> None:
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    found: dict[str, tuple[bool, dict[str, object]]] = {}
    with far("out0", "10.66.2.1", WORLD, ECHO) as world, far("gv0", "10.66.1.1", MACHINE, ASK) as machine:
        assert world.stdout is not None
        assert world.stdout.readline() == "there\n"
        deadline = time.monotonic() + 20
        while not answered(machine):  # the links come up
            assert time.monotonic() < deadline
        for name, rules in json.load(sys.stdin).items():
            run("nft", "-f", "-", text=f"flush ruleset\n{rules}\n")
            passes, finding = answered(machine), asdict(checks.firewall("gv"))
            if not passes:
                for command in re.findall(r"nft '(.*?)'", str(finding["remedy"])):
                    run("nft", command)
                for chain, rest in re.findall(r"iptables -I (\S+) (.*?) -j ACCEPT", str(finding["remedy"])):
                    run("nft", f"insert rule ip filter {chain} {_translated(rest)} accept")
                finding["after"] = answered(machine) and checks.firewall("gv").ok
            found[name] = (passes, finding)
    with suppress(BrokenPipeError):
        print(json.dumps(found))


def _translated(options: str) -> str:
    """What iptables makes of these, where there is no iptables."""
    words = options.replace("-i gv+", 'iifname "gv*"').replace("-o gv+", 'oifname "gv*"')
    return words.replace("-m conntrack --ctstate RELATED,ESTABLISHED", "ct state related,established")


if __name__ == "__main__":
    main()
