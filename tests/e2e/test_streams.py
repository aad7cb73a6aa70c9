"""ssh through the server: real servers, a real agent, and the machine's greeting at the end of the line."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_spine import PASSWORD, Spine, eventually, node_ready
from gpuaas.control.bootstrap import bootstrap

BANNER = "SSH-2.0-modelled\r\n"


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
        running("launch", "train-1", "--offer", "h100-1")
        yield running
    finally:
        running.end()


def ssh(spine: Spine, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuaas.cli.main", "ssh", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=spine.environment, timeout=60, check=False)


def proxied(spine: Spine, *arguments: str, url: str | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gpuaas.cli.main", "ssh-proxy", "train-1", *arguments]
    environment = {**spine.environment, **({"GPUAAS_SERVER": url, "GPUAAS_TOKEN": spine.made.token} if url else {})}
    return subprocess.run(command, input=b"", capture_output=True, env=environment, timeout=60, check=False)


def somebody_listens(spine: Spine) -> bool:
    endpoint = spine.json("show", "train-1")["endpoint"]
    with socket.socket() as there:
        return there.connect_ex((endpoint["host"], endpoint["port"])) == 0


def test_a_machine_is_reached_through_the_server(spine: Spine) -> None:
    done = proxied(spine)
    assert (done.returncode, done.stdout.decode()) == (0, BANNER), (done.stderr, spine.logs())
    assert "Bearer" not in spine.logs()

    # A modelled machine is no ssh server: ssh comes as far as its greeting, which is as far as it can. Its port is
    # nobody's, except where a real machine of another test has the same at this moment.
    for how in ([], ["--via-server"]):
        taken = somebody_listens(spine)
        said = ssh(spine, "train-1", *how, "--", "true")
        assert said.returncode == 255
        if taken or somebody_listens(spine):
            continue
        assert "Connection closed" in said.stderr or "banner" in said.stderr or "UNKNOWN port" in said.stderr, said
        assert ("going through the server" in said.stderr) == (not how)

    spine("release", "train-1", "--yes")
    said = ssh(spine, "train-1")
    assert said.returncode == 4
    refused = proxied(spine)
    assert refused.returncode == 4
    assert b"There is no allocation" in refused.stderr


@pytest.mark.slow
def test_a_machine_whose_node_is_away(spine: Spine) -> None:
    spine.kill("agent")
    started = time.monotonic()
    refused = proxied(spine)
    assert refused.returncode in (5, 6), refused
    assert b"did not answer within 15 s" in refused.stderr or b"no connection to the server" in refused.stderr
    assert time.monotonic() - started < 30
    spine.start_agent()
    eventually(lambda: proxied(spine).stdout.decode() == BANNER)


def test_the_node_is_linked_to_another_server(spine: Spine, database_url: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    other = spine.spawn(
        "server", "--port", str(port), "--state-dir", str(spine.home / "other"), "--advertise-url", url,
        GPUAAS_DATABASE_URL=database_url,
    )  # fmt: skip
    try:
        eventually(lambda: _answers(port))
        done = proxied(spine, url=url)
        assert (done.returncode, done.stdout.decode()) == (0, BANNER), (done.stderr, spine.logs())
    finally:
        other.kill()
        other.communicate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
