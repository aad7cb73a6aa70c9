"""One launch from the command line to the (fake) machine and back: real processes, real database, real kills."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuaas import Client, GpuaasError, Unreachable
from gpuaas.control.bootstrap import Bootstrapped, bootstrap
from gpuaas.sdk.retry import Retry

PASSWORD = "correct horse battery"
PATIENCE_SECONDS = 60.0


class Spine:
    """A server, an agent and a person at the command line."""

    def __init__(self, home: Path, database_url: str, made: Bootstrapped) -> None:
        self.home = home
        self.made = made
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
        self.environment = {**kept, "HOME": str(home), "GPUAAS_CONFIG": str(home / "config.json")}
        self._database_url = database_url
        self._running: dict[str, subprocess.Popen[str]] = {}

    def spawn(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpuaas.cli.main", *arguments]
        log = open(self.home / f"{arguments[0]}.log", "a")  # noqa: SIM115 the process keeps it
        environment = {**self.environment, **more}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def start_server(self) -> None:
        self._running["server"] = self.spawn(
            "server", "--port", str(self.port), "--state-dir", str(self.home), GPUAAS_DATABASE_URL=self._database_url
        )
        eventually(self._answers)

    def start_agent(self, servers: str = "") -> None:
        arguments = ["agent", "run", "--server", servers or self.url, "--name", "n1", "--host", "modelled",
                     "--state-dir", str(self.home / "agent")]  # fmt: skip
        self._running["agent"] = self.spawn(*arguments, GPUAAS_JOIN_TOKEN=self.made.join_token or "")

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def end(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "gpuaas.cli.main", *arguments],
            input=stdin, capture_output=True, text=True, env=self.environment, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == code, (arguments, done.stdout, done.stderr, self.logs())
        return done.stdout

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def client(self) -> Client:
        return Client(self.url, self.made.token, timeout_seconds=5.0, retry=Retry(attempts=1))

    def logs(self) -> str:
        return "\n".join(log.read_text()[-3000:] for log in self.home.glob("*.log"))

    def _answers(self) -> bool:
        assert self._running["server"].poll() is None, self.logs()
        try:
            with self.client() as client:
                return client.ready().status == "ready"
        except GpuaasError:
            return False


def eventually(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def spine(tmp_path: Path, database_url: str) -> Iterator[Spine]:
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research", node="n1")
    running = Spine(tmp_path, database_url, made)
    try:
        running.start_server()
        running.start_agent()
        running("login", running.url, "--email", "ada@example.org", "--password-stdin", stdin=PASSWORD + "\n")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
        running("key", "add", "laptop", str(tmp_path / "key.pub"))
        eventually(lambda: node_ready(running))
        yield running
    finally:
        running.end()


def node_ready(spine: Spine) -> bool:
    with spine.client() as client:
        return any(node.ready and node.state == "ready" for node in client.nodes.list())


def state(spine: Spine, name: str) -> str:
    return str(spine.json("show", name)["state"])


def used_slots(spine: Spine) -> int:
    return sum(1 for slot in spine.json("node", "show", "n1")["slots"] if slot["allocation_id"])


def test_a_machine_from_launch_to_release(spine: Spine) -> None:
    assert spine("whoami").startswith("user")
    assert [key["name"] for key in spine.json("key", "ls")["items"]] == ["laptop"]
    assert spine.json("plan", "--offer", "h100-1")["fits"] is True

    assert spine("launch", "train-1", "--offer", "h100-1").startswith("ssh -p ")
    launched = spine.json("show", "train-1")
    assert launched["state"] == "active"
    assert [item["name"] for item in spine.json("ls")["items"]] == ["train-1"]
    assert "train-1" in spine("ls")
    assert used_slots(spine) == 1
    spine("launch", "train-1", "--offer", "h100-1", code=5)
    spine("launch", "big", "--offer", "h100-8", code=5)

    spine("restart", "train-1", code=2)
    spine("restart", "train-1", "--yes")
    restarted = spine.json("show", "train-1")
    for same in ("id", "endpoint", "host_key"):
        assert restarted[same] == launched[same]

    spine("release", "train-1", "--yes")
    assert spine.json("ls")["items"] == []
    assert [item["state"] for item in spine.json("ls", "--all")["items"]] == ["released"]
    assert used_slots(spine) == 0
    operations = spine.json("op", "ls")["items"]
    assert [(item["kind"], item["state"]) for item in operations] == [
        ("release", "succeeded"),
        ("restart", "succeeded"),
        ("launch", "succeeded"),
    ]
    assert "succeeded" in spine("op", "follow", operations[0]["id"])
    assert all(phase["state"] == "done" for phase in spine.json("op", "show", operations[2]["id"])["phases"])
    assert spine.json("admin", "audit", "verify")["intact"] is True
    assert spine.json("admin", "audit", "verify", "--platform")["intact"] is True


def test_keys_are_swapped_on_a_running_machine(spine: Spine) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", spine.home / "desk"], check=True)
    spine("launch", "train-1", "--offer", "h100-1")
    spine("key", "add", "desk", str(spine.home / "desk.pub"))
    changed = spine.json("access", "keys", "train-1", "--add", "desk")
    assert (changed["operation"]["kind"], changed["operation"]["state"]) == ("access.update", "succeeded")
    assert changed["allocation"]["state"] == "active"
    spine("key", "remove", "laptop")
    assert [key["name"] for key in spine.json("access", "keys", "train-1")["items"]] == ["desk"]
    done = [item["kind"] for item in spine.json("op", "ls", "train-1")["items"]]
    assert done == ["access.update", "access.update", "launch"]
    assert spine.json("access", "sessions", "train-1")["items"] == []
    spine("release", "train-1", "--yes")
    spine("access", "keys", "train-1", "--set", "desk", code=4)


def test_a_group_fills_the_node_and_the_queue_moves_on(spine: Spine) -> None:
    group = spine.json("launch", "pool", "--offer", "h100-1", "--count", "8")
    assert [item["name"] for item in group["allocations"]] == [f"pool-{n}" for n in range(8)]
    assert len({item["endpoint"]["port"] for item in group["allocations"]}) == 8
    spine("launch", "late", "--offer", "h100-1", code=5)
    queued = spine.json("launch", "late", "--offer", "h100-1", "--wait", "--detach")
    assert queued["queued"] is True
    assert state(spine, "late") == "queued"
    spine("release", "pool-3", "--yes")
    spine("op", "follow", queued["operations"][0]["id"])
    assert state(spine, "late") == "active"


@pytest.mark.slow
def test_kills_in_the_middle_lose_nothing_and_do_nothing_twice(spine: Spine) -> None:
    feed = spine.spawn("events", "--follow", "--json", "--after", "0")
    try:
        _kill_and_converge(spine)
        seen = _everything_seen(spine, feed)
    finally:
        feed.kill()
        feed.communicate()
    assert seen == list(range(1, len(seen) + 1))


def _kill_and_converge(spine: Spine) -> None:
    # The agent is away: the launch is accepted, and waits for it. Then the server goes too, under a follower.
    spine.kill("agent")
    accepted = spine.json("launch", "train-1", "--offer", "h100-1", "--detach")
    follower = spine.spawn("op", "follow", accepted["operations"][0]["id"], "--json")
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["state"] == "running"
    spine.kill("server")
    spine.start_server()
    spine.start_agent()
    followed, _ = follower.communicate(timeout=90)
    assert follower.returncode == 0, spine.logs()
    assert json.loads(followed.splitlines()[-1])["state"] == "succeeded"
    assert state(spine, "train-1") == "active"

    # The server dies at some point of a request; the same key is sent until there is an answer. `wait`, because a node
    # that has not come back to the new server yet is refused as capacity, but not as a place in the queue.
    with ThreadPoolExecutor(1) as other:
        for number, delay in enumerate((0.0, 0.01, 0.04)):
            asking = other.submit(_launch_until_answered, spine, f"crash-{number}")
            time.sleep(delay)
            spine.kill("server")
            spine.start_server()
            asking.result(PATIENCE_SECONDS)
    eventually(lambda: all(item["state"] == "active" for item in spine.json("ls")["items"]))
    assert sorted(item["name"] for item in spine.json("ls")["items"]) == ["crash-0", "crash-1", "crash-2", "train-1"]
    assert used_slots(spine) == 4
    entries = spine.json("admin", "audit", "ls")["items"]
    assert [entry["action"] for entry in entries].count("allocation.launch") == 4

    # Restart and release are under way when the agent, and then the server, die.
    spine("restart", "train-1", "--yes", "--detach")
    spine.kill("agent")
    spine("release", "crash-0", "--yes", "--detach")
    spine.kill("server")
    spine.start_server()
    spine.start_agent()
    eventually(lambda: state(spine, "train-1") == "active" and used_slots(spine) == 3)
    for name in ("train-1", "crash-1", "crash-2"):
        spine("release", name, "--yes")
    assert used_slots(spine) == 0
    assert spine.json("admin", "audit", "verify")["intact"] is True


def _launch_until_answered(spine: Spine, name: str) -> None:
    with spine.client() as client:
        while True:
            try:
                client.allocations.launch(name, offer="h100-1", wait=True, idempotency_key=f"key-{name}")
            except Unreachable:
                time.sleep(0.05)
            else:
                return


def _everything_seen(spine: Spine, feed: subprocess.Popen[str]) -> list[int]:
    """The numbers that the follower printed, up to the newest event there is."""
    newest = spine.json("events", "--limit", "1")["items"][0]["seq"]
    assert feed.stdout is not None
    seen: list[int] = []
    while not seen or seen[-1] < newest:
        line = feed.stdout.readline()
        assert line, spine.logs()
        seen.append(json.loads(line)["seq"])
    return seen
