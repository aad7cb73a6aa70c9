"""Who gets into a machine, and who was there."""

from typing import Any

import pytest

from cli.conftest import Gpuaas
from cli.test_machines import ALLOCATIONS, MINE, follows
from sdk import samples
from sdk.playback import Answer, Playback

KEYS = f"{MINE}/keys"


@pytest.fixture
def machine(server: Playback) -> Playback:
    """It lets two keys in, and takes every change."""
    there = samples.page(samples.machine_key("laptop"), samples.machine_key("desk"))
    changed = {"allocation": samples.allocation(), "operation": samples.operation(kind="access.update")}
    for path in (f"{ALLOCATIONS}/train-1", MINE):
        server.on("GET", path, Answer(200, samples.allocation()))
        server.on("GET", f"{path}/keys", Answer(200, there))
    server.on("PUT", KEYS, Answer(202, changed))
    follows(server, samples.operation("succeeded", kind="access.update"))
    return server


def sent(server: Playback) -> list[Any]:
    return [asked.json["keys"] for asked in server.to("PUT", KEYS)]


def test_the_keys_that_get_in_are_listed(gpuaas: Gpuaas, machine: Playback) -> None:
    lines = gpuaas("access", "keys", "train-1").out.splitlines()
    assert lines[0].split() == ["KEY", "USER", "TYPE", "FINGERPRINT"]
    assert [line.split()[:2] for line in lines[1:]] == [["laptop", "ada@example.org"], ["desk", "ada@example.org"]]
    found = gpuaas("access", "keys", "train-1", "--json").json
    assert [item["id"] for item in found["items"]] == ["sk-laptop", "sk-desk"]
    machine.on("GET", f"{ALLOCATIONS}/train-1/keys", Answer(200, samples.page()))
    said = gpuaas("access", "keys", "train-1")
    assert (said.code, said.out, said.err) == (0, "", "Nobody gets in.\n")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--set", "ci"], ["ci"]),
        (["--set", "ci", "--set", "desk"], ["ci", "desk"]),
        (["--add", "ci"], ["sk-laptop", "sk-desk", "ci"]),
        (["--add", "desk"], ["sk-laptop", "sk-desk"]),
        (["--remove", "laptop"], ["sk-desk"]),
        (["--remove", "SHA256:desk", "--add", "ci"], ["sk-laptop", "ci"]),
        (["--remove", "laptop", "--add", "laptop"], ["sk-desk", "laptop"]),
        (["--remove", "laptop", "--remove", "sk-desk"], []),
    ],
)
def test_keys_are_changed_by_id(gpuaas: Gpuaas, machine: Playback, options: list[str], wanted: list[str]) -> None:
    said = gpuaas("access", "keys", "train-1", *options)
    assert (said.code, said.out) == (0, "train-1 has other keys.\n")
    assert sent(machine) == [wanted]
    assert ("Nobody gets into train-1" in said.err) == (not wanted)
    answer = gpuaas("access", "keys", "train-1", *options, "--json")
    assert answer.json["operation"]["state"] == "succeeded"
    detached = gpuaas("access", "keys", "train-1", *options, "--detach")
    assert "gpuaas op follow op-aaaaaaaaaaaaaaaa" in detached.out


@pytest.mark.parametrize("options", [["--set", "a", "--add", "b"], ["--set", "a", "--remove", "b"], ["--remove", "x"]])
def test_what_makes_no_sense_is_not_sent(gpuaas: Gpuaas, machine: Playback, options: list[str]) -> None:
    assert gpuaas("access", "keys", "train-1", *options).code == 2
    assert sent(machine) == []


def test_a_failed_change_is_exit_code_1(gpuaas: Gpuaas, machine: Playback) -> None:
    follows(machine, samples.operation("failed", kind="access.update"))
    assert gpuaas("access", "keys", "train-1", "--set", "ci").code == 1


def test_sessions(gpuaas: Gpuaas, server: Playback) -> None:
    here = samples.session("s2")
    gone = samples.session("s1", user=None, user_id=None, closed_at=samples.LATER, close_reason="the machine stopped")
    server.on("GET", f"{ALLOCATIONS}/train-1/sessions", Answer(200, samples.page(here, gone)))
    lines = gpuaas("access", "sessions", "train-1").out.splitlines()
    assert lines[0].split() == ["USER", "FROM", "SINCE", "UNTIL", "KEY", "END"]
    assert lines[1].startswith("ada@example.org")
    assert " now " in lines[1]
    assert lines[2].startswith("somebody unknown")
    assert lines[2].endswith("the machine stopped")
    assert len(gpuaas("access", "sessions", "train-1", "--open").out.splitlines()) == 2
    assert gpuaas("access", "sessions", "train-1", "--limit", "1", "--json").json["items"] == [here]


def test_members_of_an_organisation(gpuaas: Gpuaas, server: Playback) -> None:
    ada = {"user_id": "us-aaaaaaaaaaaaaaaa", "email": "ada@example.org", "name": "Ada", "role": "tenant_admin"}
    members = "/api/v1/orgs/acme/members"
    server.on("GET", members, Answer(200, samples.page(ada)))
    server.on("DELETE", f"{members}/{ada['user_id']}", Answer(204, None))
    assert gpuaas("member", "ls", "--org", "acme").out.splitlines()[1].split()[:3] == [
        "ada@example.org",
        "Ada",
        "tenant_admin",
    ]
    assert gpuaas("member", "remove", ada["user_id"], "--org", "acme").out == f"Removed {ada['user_id']}.\n"
    assert server.asked[-1].method == "DELETE"
