"""`gpuaas ssh`, `gpuaas ssh-config`: what ssh is told. A program named ssh on the PATH writes down its arguments."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Gpuaas
from gpuaas.cli import reach
from sdk import samples
from sdk.playback import Answer, Playback

ID, OTHER_ID = "al-" + "a" * 16, "al-" + "b" * 16
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKc5AAAA"
ME, SOMEBODY = "us-" + "a" * 16, "us-" + "b" * 16


def machine(**changes: Any) -> dict[str, Any]:
    made = {
        **samples.allocation(), "id": ID, "name": "train-1", "state": "active", "host_key": KEY, "owner_id": ME,
        "project_id": "pr-lab", "endpoint": {"host": "192.0.2.1", "port": 20007, "user": "gpu"},
    }  # fmt: skip
    return {**made, **changes}


@pytest.fixture
def fake_ssh(gpuaas: Gpuaas) -> Path:
    """Where the arguments of the last ssh are."""
    told = gpuaas.home / "told.json"
    program = gpuaas.home / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f"#!/usr/bin/env python3\nimport json, sys\njson.dump(sys.argv[1:], open({str(told)!r}, 'w'))\nsys.exit(7)\n"
    )
    program.chmod(0o755)
    gpuaas.environment["PATH"] = f"{program.parent}:{gpuaas.environment['PATH']}"
    return told


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as there:
        yield there.getsockname()[1]


def ssh(gpuaas: Gpuaas, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        gpuaas.command("ssh", *arguments), env=gpuaas.environment, capture_output=True, text=True, check=False
    )


def options(told: Path) -> tuple[dict[str, str], list[str]]:
    found = json.loads(told.read_text())
    end = found.index("--")
    pairs = dict(found[n + 1].split("=", 1) for n in range(end) if found[n] == "-o")
    return pairs, found[end + 1 :]


def known_hosts(gpuaas: Gpuaas, server: Playback) -> Path:
    return gpuaas.config.parent / "known_hosts" / server.url.replace("://", "_").replace(":", "_")


def test_directly(gpuaas: Gpuaas, server: Playback, fake_ssh: Path, listening: int) -> None:
    there = {"host": "127.0.0.1", "port": listening, "user": "gpu"}
    server.on("GET", "/api/v1/allocations/train-1", Answer(body=machine(endpoint=there)))
    done = ssh(gpuaas, "train-1", "-i", "my key", "--", "echo", "-x", "a b")
    assert (done.returncode, done.stderr) == (7, "")
    told, rest = options(fake_ssh)
    assert rest == ["127.0.0.1", "echo", "-x", "a b"]
    assert told == {
        "Port": str(listening),
        "User": "gpu",
        "HostKeyAlias": ID,
        "UserKnownHostsFile": f'"{known_hosts(gpuaas, server)}"',
        "StrictHostKeyChecking": "yes",
    }
    arguments = json.loads(fake_ssh.read_text())
    assert arguments[arguments.index("-i") + 1] == "my key"
    assert known_hosts(gpuaas, server).read_text() == f"{ID} {KEY}\n"
    assert known_hosts(gpuaas, server).stat().st_mode & 0o777 == 0o600
    assert known_hosts(gpuaas, server).parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("endpoint", "arguments", "said"),
    [
        ({"host": "127.0.0.1", "port": 1, "user": "gpu"}, [], "does not answer; going through the server"),
        (None, [], ""),
        ({"host": "-oProxyCommand=evil", "port": 22, "user": "gpu"}, [], ""),
        ({"host": "127.0.0.1", "port": 1, "user": "gpu"}, ["--via-server"], ""),
    ],
)
def test_through_the_server(
    gpuaas: Gpuaas, server: Playback, fake_ssh: Path, endpoint: Any, arguments: list[str], said: str
) -> None:
    server.on("GET", "/api/v1/allocations/train-1", Answer(body=machine(endpoint=endpoint)))
    done = ssh(gpuaas, "train-1", *arguments)
    assert done.returncode == 7
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)
    told, rest = options(fake_ssh)
    assert rest == [ID]
    assert told["ProxyCommand"].endswith(f"-m gpuaas.cli.main ssh-proxy --server {server.url} {ID}")
    assert "evil" not in fake_ssh.read_text()


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("queued", "capacity"),
        ("provisioning", "try again"),
        ("restarting", "try again"),
        ("unreachable", "silent"),
        ("failed", "gpuaas show train-1"),
        ("released", "gpuaas launch"),
    ],
)
def test_a_machine_that_is_not_active(gpuaas: Gpuaas, server: Playback, state: str, advice: str) -> None:
    server.on("GET", "/api/v1/allocations/train-1", Answer(body=machine(state=state)))
    said = gpuaas("ssh", "train-1")
    assert said.code == 5
    assert f"train-1 is {state}" in said.err
    assert advice in said.err


@pytest.mark.parametrize(
    "key", ["", "nonsense", f"{KEY}\n* {KEY}", f"@cert-authority * {KEY}", f"* {KEY}", "ssh-ed25519 AAAA\x1b[2J"]
)
def test_a_host_key_is_one_key_and_nothing_else(gpuaas: Gpuaas, server: Playback, key: str) -> None:
    server.on("GET", "/api/v1/allocations/train-1", Answer(body=machine(host_key=key)))
    said = gpuaas("ssh", "train-1")
    assert said.code == 2
    assert "no usable host key" in said.err


def test_known_hosts_are_added_to(gpuaas: Gpuaas, server: Playback, fake_ssh: Path) -> None:
    server.on("GET", "/api/v1/allocations/a", Answer(body=machine(endpoint=None)))
    server.on("GET", "/api/v1/allocations/b", Answer(body=machine(id=OTHER_ID, endpoint=None, host_key=KEY + " me")))
    for name in ("a", "b", "a"):
        ssh(gpuaas, name)
    assert known_hosts(gpuaas, server).read_text() == f"{ID} {KEY}\n{OTHER_ID} {KEY}\n"


# --- ssh-config -------------------------------------------------------------------------------------------------


def listed(server: Playback, *machines: dict[str, Any]) -> None:
    server.on("GET", "/api/v1/allocations", Answer(body={"items": list(machines), "next_cursor": None}))
    projects = [samples.project() | {"id": id, "slug": slug} for id, slug in (("pr-lab", "lab"), ("pr-side", "side"))]
    server.on("GET", "/api/v1/projects", Answer(body={"items": projects, "next_cursor": None}))
    me = samples.user() | {"id": ME}
    whoami = {"user": me, "token_id": "tk-a", "scopes": ["*"], "orgs": [], "projects": []}
    server.on("GET", "/api/v1/whoami", Answer(body=whoami))


def parsed(file: Path, host: str) -> dict[str, str]:
    """As the real ssh understands it."""
    done = subprocess.run(["ssh", "-G", "-F", file, host], capture_output=True, text=True, check=True)
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_ssh_understands_it(gpuaas: Gpuaas, server: Playback) -> None:
    listed(
        server,
        machine(),
        machine(id=OTHER_ID, name="far", project_id="pr-side", endpoint=None),
        machine(id="al-" + "c" * 16, name="gone", state="released"),
    )
    said = gpuaas("ssh-config")
    assert said.code == 0
    file = gpuaas.home / "printed"
    file.write_text(said.out)
    for host in ("train-1", "train-1.lab.gpuaas", f"{ID}.gpuaas"):
        found = parsed(file, host)
        assert (found["hostname"], found["port"], found["user"]) == ("192.0.2.1", "20007", "gpu")
        assert found["hostkeyalias"] == ID
        assert found["stricthostkeychecking"] == "true"
        assert found["userknownhostsfile"] == str(known_hosts(gpuaas, server))
        assert "proxycommand" not in found
    for host in ("far", "far.side.gpuaas"):
        found = parsed(file, host)
        assert found["hostkeyalias"] == OTHER_ID
        assert found["proxycommand"].endswith(f"ssh-proxy --server {server.url} {OTHER_ID}")
    assert parsed(file, "gone")["hostname"] == "gone"
    assert known_hosts(gpuaas, server).read_text() == f"{ID} {KEY}\n{OTHER_ID} {KEY}\n"
    assert not (gpuaas.home / ".ssh").exists(), "only --write writes there"


def test_through_the_server_for_all(gpuaas: Gpuaas, server: Playback) -> None:
    listed(server, machine())
    assert "ProxyCommand" in gpuaas("ssh-config", "--via-server").out
    (host,) = gpuaas("ssh-config", "--json").json["items"]
    assert host["names"] == [f"{ID}.gpuaas", "train-1.lab.gpuaas", "train-1"]


def test_a_short_name_is_for_ones_own_and_unique_machines(gpuaas: Gpuaas, server: Playback) -> None:
    listed(
        server,
        machine(name="prod", owner_id=SOMEBODY),
        machine(id=OTHER_ID, name="twin"),
        machine(id="al-" + "c" * 16, name="twin", project_id="pr-side"),
        machine(id="al-" + "d" * 16, name="x\n    ProxyCommand evil"),
    )
    names = [host["names"] for host in gpuaas("ssh-config", "--json").json["items"]]
    assert names == [
        [f"{ID}.gpuaas", "prod.lab.gpuaas"],
        [f"{OTHER_ID}.gpuaas", "twin.lab.gpuaas"],
        [f"al-{'c' * 16}.gpuaas", "twin.side.gpuaas"],
        [f"al-{'d' * 16}.gpuaas"],
    ]
    assert "evil" not in gpuaas("ssh-config").out


def test_write_touches_one_line_and_remove_takes_it_back(gpuaas: Gpuaas, server: Playback) -> None:
    listed(server, machine())
    kept = gpuaas.home / "dotfiles" / "ssh_config"
    kept.parent.mkdir()
    before = b"# mine\r\nHost *\n\tForwardAgent no\nHost last\n  Port 23"  # no line's end at the end
    kept.write_bytes(before)
    kept.chmod(0o640)
    directory = gpuaas.home / ".ssh"
    directory.mkdir(mode=0o750)
    (directory / "config").symlink_to(kept)

    for _ in range(2):
        assert gpuaas("ssh-config", "--write").code == 0
        assert kept.read_bytes() == b"Include ~/.ssh/gpuaas.config\n" + before
    assert (directory / "config").is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert directory.stat().st_mode & 0o777 == 0o750
    own = directory / "gpuaas.config"
    assert own.stat().st_mode & 0o777 == 0o600
    assert parsed(own, "train-1")["hostkeyalias"] == ID

    assert gpuaas("ssh-config", "--remove").code == 0
    assert kept.read_bytes() == before
    assert kept.stat().st_mode & 0o777 == 0o640
    assert not own.exists()
    assert "nothing to remove" in gpuaas("ssh-config", "--remove").err
    assert gpuaas("ssh-config", "--remove", "--write").code == 2


def test_write_without_any_ssh_directory(gpuaas: Gpuaas, server: Playback) -> None:
    listed(server, machine())
    said = gpuaas("ssh-config", "--write")
    assert said.out == "ssh train-1\n"
    config = gpuaas.home / ".ssh" / "config"
    assert config.read_text() == "Include ~/.ssh/gpuaas.config\n"
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.parent.stat().st_mode & 0o777 == 0o700


def test_odd_places_are_quoted(gpuaas: Gpuaas, server: Playback) -> None:
    odd = gpuaas.home / "a b%d;$(touch x)'" / "config.json"
    listed(server, machine(endpoint=None))
    said = gpuaas("ssh-config", GPUAAS_CONFIG=str(odd))
    assert said.code == 0, said.err
    file = gpuaas.home / "printed"
    file.write_text(said.out)
    found = parsed(file, "train-1")
    assert found["userknownhostsfile"].startswith(f"{odd.parent}/known_hosts/")
    shown = found["proxycommand"].replace("%%", "%")
    words = subprocess.run(["sh", "-c", f"printf '%s\\n' {shown}"], capture_output=True, text=True, check=True).stdout
    assert words.splitlines()[:2] == ["env", f"GPUAAS_CONFIG={odd}"]
    assert not os.path.exists("x")
    assert gpuaas("ssh-config", GPUAAS_CONFIG=f'{gpuaas.home}/a"b/config.json').code == 2


@pytest.mark.parametrize("host", ["n1", "n1.example.org", "10.0.0.1", "2001:db8::1", "::1"])
def test_addresses(host: str) -> None:
    assert reach._ADDRESS.fullmatch(host)


@pytest.mark.parametrize("host", ["", "-p", "a b", "a\nb", "a;b", "%h", "$(x)", "a\x00"])
def test_what_is_no_address(host: str) -> None:
    assert not reach._ADDRESS.fullmatch(host)


def test_the_proxy_is_for_ssh_and_not_for_people(gpuaas: Gpuaas) -> None:
    assert "ssh-proxy" not in gpuaas("--help").out
    said = gpuaas("ssh-proxy", ID, "--server", "http://127.0.0.1:2")
    assert said.code == 3
    assert "not signed in to http://127.0.0.1:2" in said.err
