"""Two servers over one PostgreSQL, behind a balancer: either may be killed, and nobody has to know."""

import json
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from e2e.proxy import Proxy, proxy
from e2e.test_spine import PASSWORD, Spine, _everything_seen, eventually, node_ready
from gpuaas.control.bootstrap import Bootstrapped, bootstrap

TOKEN = "scrape-me-0123456789abcdef"


class Pair(Spine):
    """Two servers; agent and people know only the address of the proxy."""

    def __init__(self, home: Path, database_url: str, made: Bootstrapped) -> None:
        super().__init__(home, database_url, made)
        self.token_file = home / "metrics.token"
        self.token_file.write_text(TOKEN)
        self.servers: dict[str, tuple[int, subprocess.Popen[str]]] = {}

    def behind(self, front: Proxy) -> None:
        self.port, self.url = front.port, f"http://127.0.0.1:{front.port}"

    def serve(self, name: str, port: int) -> None:
        process = self.spawn(
            "server", "--port", str(port), "--state-dir", str(self.home), "--metrics-token-file", str(self.token_file),
            GPUAAS_DATABASE_URL=self._database_url,
        )  # fmt: skip
        self.servers[name] = (port, process)
        eventually(lambda: self._up(port))

    def _up(self, port: int) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def links(self, name: str) -> int:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        said = httpx.get(f"http://127.0.0.1:{self.servers[name][0]}/metrics", headers=headers, timeout=20).text
        found = re.search(r"^gpuaas_links (\d+)", said, re.MULTILINE)
        return int(found[1]) if found else 0

    def end_server(self, name: str) -> None:
        _, process = self.servers.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def end(self) -> None:
        for name in list(self.servers):
            self.end_server(name)
        super().end()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def pair(tmp_path: Path, database_url: str) -> Iterator[Pair]:
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research", node="n1")
    running = Pair(tmp_path, database_url, made)
    ports = [free_port(), free_port()]
    with proxy(*ports) as front:
        running.behind(front)
        try:
            for name, port in zip(("one", "two"), ports, strict=True):
                running.serve(name, port)
            running.start_agent()
            running("login", running.url, "--email", "ada@example.org", "--password-stdin", stdin=PASSWORD + "\n")
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
            running("key", "add", "laptop", str(tmp_path / "key.pub"))
            eventually(lambda: node_ready(running))
            yield running
        finally:
            running.end()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_links_streams_and_sweeps_survive_the_death_of_a_server(pair: Pair) -> None:
    feed = pair.spawn("events", "--follow", "--json", "--after", "0")
    org_feed = pair.spawn("events", "--follow", "--json", "--org", "lab")
    try:
        pair("launch", "before", "--offer", "h100-1")
        holder = next(name for name in ("one", "two") if pair.links(name))
        other = "two" if holder == "one" else "one"
        assert pair.links(other) == 0
        port = pair.servers[holder][0]
        pair.end_server(holder)
        eventually(lambda: pair.links(other) == 1)
        pair("launch", "after", "--offer", "h100-1")  # through the survivor, over the link that moved there
        pair("restart", "before", "--yes")
        pair.serve(holder, port)

        # Both sweep; the node falls silent, and comes back.
        pair.kill("agent")
        eventually(lambda: {item["state"] for item in pair.json("ls")["items"]} == {"unreachable"})
        pair.start_agent()
        eventually(lambda: {item["state"] for item in pair.json("ls")["items"]} == {"active"})

        # An agent that knows both has no need of the proxy.
        pair.kill("agent")
        pair.start_agent(",".join(f"http://127.0.0.1:{port}" for port, _ in pair.servers.values()))
        eventually(lambda: pair.links("one") + pair.links("two") == 1)
        holder, other = ("one", "two") if pair.links("one") else ("two", "one")
        port = pair.servers[holder][0]
        pair.end_server(holder)
        eventually(lambda: pair.links(other) == 1)
        pair.serve(holder, port)
        pair("release", "before", "--yes")
        pair("release", "after", "--yes")
        seen = _everything_seen(pair, feed)
        in_org = _lines(org_feed, seen[-1])
    finally:
        for process in (feed, org_feed):
            process.kill()
            process.communicate()
    assert seen == list(range(1, len(seen) + 1)), "nothing missing, nothing twice, across both servers"
    assert in_org == list(range(in_org[0], seen[-1] + 1))
    listed = pair.json("events", "--limit", "1000")["items"]
    times = Counter((item["object_id"], item["type"]) for item in listed if item["type"] == "allocation.unreachable")
    assert sorted(times.values()) == [1, 1], "each machine was found unreachable once, by one of the two"
    entries = pair.json("admin", "audit", "ls", "--platform", "--limit", "1000")["items"]
    lost = [entry for entry in entries if entry["action"] in ("node.silent", "node.lost")]
    assert len(lost) <= 1
    for which in ([], ["--platform"]):
        assert pair.json("admin", "audit", "verify", *which)["intact"] is True


def _lines(feed: subprocess.Popen[str], newest: int) -> list[int]:
    assert feed.stdout is not None
    found: list[int] = []
    while not found or found[-1] < newest:
        line = feed.stdout.readline()
        assert line
        found.append(json.loads(line)["seq"])
    return found
