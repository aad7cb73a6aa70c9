"""One line that makes a host a node."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_spine import PASSWORD, Spine, eventually, node_ready
from gpuaas.control.bootstrap import bootstrap


@pytest.fixture
def spine(tmp_path: Path, database_url: str) -> Iterator[Spine]:
    made = bootstrap(database_url, email="ada@example.org", password=PASSWORD, org="lab", project="research")
    running = Spine(tmp_path, database_url, made)
    try:
        running.start_server()
        running("login", running.url, "--email", "ada@example.org", "--password-stdin", stdin=PASSWORD + "\n")
        yield running
    finally:
        running.end()


def test_a_host_becomes_a_node_in_one_line(spine: Spine) -> None:
    token = spine("node", "join-token", "--approve-slots").strip()
    state = ["--state-dir", str(spine.home / "agent"), "--name", "n1"]
    wrong = ("--image-registry", "ada:sesame@registry.example/team")
    spine("agent", "join", spine.url, token, "--host", "modelled", "--no-service", *state, *wrong, code=2)
    joined = spine.json("agent", "join", spine.url, token, "--host", "modelled", "--no-service", *state)
    assert (joined["name"], joined["address"], joined["service"]) == ("n1", "127.0.0.1", False)
    assert [node["id"] for node in spine.json("node", "ls")["items"]] == [joined["node_id"]]
    state += ["--image-registry", "registry.example/team"]
    again = spine("agent", "join", spine.url, "-", "--host", "modelled", "--no-service", *state, stdin="used\n")
    assert joined["node_id"] in again, "who has joined stays who it is"
    assert "Start its agent: gpuaas agent run --server" in again
    assert "--image-registry registry.example/team" in again
    spine.start_agent()  # with the same state directory and without a join token
    eventually(lambda: node_ready(spine))
    spine("agent", "join", spine.url, "made-up-0123456789abcdef", "--host", "modelled", "--no-service", "--name", "n2",
          "--state-dir", str(spine.home / "other"), code=3)  # fmt: skip


def test_a_host_that_cannot_be_a_node_is_left_alone(spine: Spine, tmp_path: Path) -> None:
    """Its state would be on a file system that the doctor refuses; the token is still good afterwards."""
    token = spine("node", "join-token").strip()
    command = [sys.executable, "-m", "gpuaas.cli.main", "agent", "join", spine.url, token, "--no-service"]
    command += ["--simulate-gpus", "1xH100", "--state-dir", "/proc/gpuaas-test"]
    said = subprocess.run(command, capture_output=True, text=True, env=spine.environment, timeout=90)
    assert said.returncode == 2, said.stderr
    assert "FAIL" in said.stderr
    assert "nothing was changed" in said.stderr
    assert spine.json("node", "ls")["items"] == []
    spine("agent", "join", spine.url, token, "--host", "modelled", "--no-service", "--state-dir", str(tmp_path / "a"))


def test_a_new_database_is_set_up_once(spine: Spine) -> None:
    spine.environment["GPUAAS_DATABASE_URL"] = spine._database_url
    assert spine.json("init", "--email", "ada@example.org") == {"created": False, "email": "ada@example.org"}
    password = spine("init", "--email", "bob@example.org", "--org", "bobs", "--project", "first").strip()
    spine("login", spine.url, "--email", "bob@example.org", "--password-stdin", stdin=password + "\n")
    assert [project["slug"] for project in spine.json("project", "ls")["items"]] == ["first"]
