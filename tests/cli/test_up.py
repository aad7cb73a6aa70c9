"""`gpuaas up` and `gpuaas down` on this machine, as whoever runs the tests and, from root, as an ordinary user.

With modelled machines; real ones are in tests/root/test_up.py.
"""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import databases

NOBODY = 65534
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["self", pytest.param("nobody", marks=pytest.mark.root)])
def gpuaas(request: pytest.FixtureRequest) -> Iterator[tuple[Run, Path]]:
    """The command, and the state directory it uses."""
    as_nobody = request.param == "nobody"
    if as_nobody and os.geteuid() != 0:
        pytest.skip("needs root")
    if as_nobody and not readable_by_all(Path(sys.executable).resolve()):
        pytest.skip("the interpreter lies where an ordinary user cannot reach it")
    home = databases.new_directory()
    state = home / "state"
    if as_nobody:
        os.chown(home, NOBODY, NOBODY)
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if as_nobody else {}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUAAS_", "XDG_"))}
    environment = {**kept, "HOME": str(home), "GPUAAS_STATE_DIR": str(state), "GPUAAS_NODE_RATE": "150"}
    environment["GPUAAS_IMAGE_REGISTRY"] = "127.0.0.1:1/team"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "gpuaas.cli.main", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd="/", timeout=100, check=False, **identity
        )

    try:
        yield run, state
    finally:
        run("down", "--purge", "--yes")
        shutil.rmtree(home)


def readable_by_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.slow
def test_up_and_down(gpuaas: tuple[Run, Path]) -> None:
    run, state = gpuaas
    port = free_port()
    (state.parent / ".ssh").mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", state.parent / ".ssh/id_ed25519"], check=True)
    for part in (state.parent / ".ssh", *(state.parent / ".ssh").iterdir()):
        os.chown(part, state.parent.stat().st_uid, -1)
    first = run("up", "--port", str(port), "--simulate-gpus", "2xA100", "--host", "modelled", "--json")
    assert first.returncode == 0, first.stderr
    made = json.loads(first.stdout)
    assert (made["created"], made["gpus"], made["server"]) == (True, 2, f"http://127.0.0.1:{port}")
    secret_files = [state / "admin.json", state / "server.log", state / "agent.log"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in secret_files} == {0o600}
    pids = [(state / f"{name}.pid").read_text() for name in ("server", "agent")]

    server, agent = (Path(f"/proc/{json.loads(pid)['pid']}/environ").read_bytes().split(b"\0") for pid in pids)
    assert b"GPUAAS_NODE_RATE=150" in server  # meant for the server, whoever starts it
    assert b"GPUAAS_IMAGE_REGISTRY=127.0.0.1:1/team" in agent

    again = run("up", "--json")
    found = json.loads(again.stdout)
    assert (found["created"], found["server"]) == (False, made["server"])
    assert "password" not in found
    assert [(state / f"{name}.pid").read_text() for name in ("server", "agent")] == pids

    assert len(json.loads(run("key", "ls", "--json").stdout)["items"]) == 1
    assert run("whoami").returncode == 0
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        assert b"--join-token" not in line.read_bytes()

    down = run("down", "--json")
    assert json.loads(down.stdout) == {"stopped": ["agent", "server", "postgres"], "purged": False}
    assert run("whoami").returncode == 6
    assert json.loads(run("down", "--json").stdout)["stopped"] == []

    third = run("up", "--json")
    assert json.loads(third.stdout)["created"] is False, third.stderr
    assert run("whoami").returncode == 0
    assert run("down", "--purge").returncode == 2
    assert run("down", "--purge", "--yes").returncode == 0
    assert not state.exists()
    assert run("down").returncode == 0


@pytest.mark.slow
def test_a_port_that_is_taken_is_named(gpuaas: tuple[Run, Path]) -> None:
    run, _ = gpuaas
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        said = run("up", "--port", str(other.getsockname()[1]), "--host", "modelled")
    assert said.returncode == 5
    assert "--port" in said.stderr
