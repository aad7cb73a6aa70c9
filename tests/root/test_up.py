"""What a user does, on real machines: up, ssh, restart, ssh again, release, down. And two tenants on one node."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuaas.node.host.images.store import Images
from root.conftest import CACHE, needs, started
from runtimes.builds import WITH_UV

pytestmark = [pytest.mark.slow, needs("ssh", "ssh-keygen", "runc", "nft")]
OPTIONS = ("IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10")

PATIENCE_SECONDS = 60.0
SILENCE = 124  # what `timeout` answers


class Person:
    """Somebody with a home directory, at the command line."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUAAS_", "XDG_"))}
        self.environment = {**kept, **WITH_UV, "HOME": str(home), "GPUAAS_CONFIG": str(home / "config.json")}

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        command = [sys.executable, "-P", "-m", "gpuaas.cli.main", *arguments]
        done = subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, cwd="/", timeout=600
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def key(self) -> None:
        (self.home / ".ssh").mkdir()
        file = self.home / ".ssh/id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
        self("key", "add", "laptop", f"{file}.pub")

    def ssh(self, machine: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.ssh_line(machine, command), capture_output=True, text=True, timeout=60)

    def ssh_line(self, machine: str, command: str) -> list[str]:
        """With plain ssh, and with the host key that the API shows for it."""
        shown = self.json("show", machine)
        known = self.home / "known_hosts"
        endpoint = shown["endpoint"]
        known.write_text(f"[{endpoint['host']}]:{endpoint['port']} {shown['host_key']}\n")
        options = [part for option in (*OPTIONS, f"UserKnownHostsFile={known}") for part in ("-o", option)]
        where = ["-p", str(endpoint["port"]), f"{endpoint['user']}@{endpoint['host']}"]
        identity = ["-F", "none", "-i", str(self.home / ".ssh/id_ed25519")]
        return ["ssh", *identity, *options, *where, command]

    def says(self, machine: str, command: str) -> str:
        done = self.ssh(machine, command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()


@pytest.fixture
def admin(work: Path, base_image: Images) -> Iterator[Person]:
    """Who typed `gpuaas up` on this machine; afterwards `gpuaas down` has to leave nothing."""
    person = Person(work / "admin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    state = ["--state-dir", str(work / "state")]
    try:
        said = person("up", *state, "--port", port, "--image-store", str(CACHE / "images"), "--simulate-gpus", "4xH100")
        assert "ssh -p" in said
        yield person
    finally:
        person("down", *state, "--purge", "--yes")
    assert not (work / "state").exists()


def test_a_machine_is_there_after_up_and_outlives_everything_but_its_release(admin: Person, work: Path) -> None:
    assert admin.says("hello", "id -un; hostname") == "gpu\nhello"
    assert admin.says("hello", "sudo id -u") == "0"
    admin.says("hello", "echo kept > notes; sudo touch /srv/also; nohup sleep 1000 > /dev/null 2>&1 &")
    before = admin.json("show", "hello")

    admin("restart", "hello", "--yes")
    after = admin.json("show", "hello")
    assert {name: after[name] for name in ("id", "endpoint", "host_key")} == {
        name: before[name] for name in ("id", "endpoint", "host_key")
    }
    assert admin.says("hello", "cat notes; ls /srv; pgrep -c sleep || true") == "kept\nalso\n0"

    # A reboot, as far as this can be had without one: nothing of it is left, and then everything comes back.
    state = ["--state-dir", str(work / "state")]
    admin("down", *state)
    admin("up", *state)
    assert_eventually_active(admin, "hello")
    assert admin.json("show", "hello")["host_key"] == before["host_key"]
    assert admin.says("hello", "cat notes") == "kept"

    told = [event["type"] for event in admin.json("events", "--limit", "200")["items"]]
    assert told.count("fact.session.opened") == told.count("fact.session.closed") > 3

    admin("release", "hello", "--yes")
    assert admin.json("ls")["items"] == []
    endpoint = before["endpoint"]
    with socket.socket() as gone:
        assert gone.connect_ex((endpoint["host"], endpoint["port"])) != 0


def test_whatever_speaks_ssh_knows_machines_by_name(admin: Person, work: Path) -> None:
    identity = ["--identity", str(admin.home / ".ssh/id_ed25519")]
    for way in ((), ("--via-server",)):
        into = ["ssh", *way, *identity, "hello", "--"]
        assert admin(*into, "cat; hostname; exit 3", stdin="said\n", code=3) == "said\nhello\n"
        assert admin(*into, "sudo", "id", "-u") == "0\n"
    for port, way in ((8123, ()), (8124, ("--via-server",))):
        (work / "ssh").write_text(admin("ssh-config", *way))
        _speak_ssh(admin, work, port)


def _speak_ssh(admin: Person, work: Path, served: int) -> None:
    """scp, sftp, rsync, and what an editor does: a shell without a terminal, and ports of the machine's own."""
    identity = f"IdentityFile={admin.home}/.ssh/id_ed25519"  # ssh asks nobody where home is
    options = ["-F", str(work / "ssh"), "-o", "BatchMode=yes", "-o", identity]

    def run(*words: str, stdin: str = "") -> str:
        done = subprocess.run(words, env=admin.environment, input=stdin, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    (work / "data").write_bytes(os.urandom(1 << 20))
    run("scp", *options, str(work / "data"), "hello:there")
    run("scp", *options, "hello:there", str(work / "back"))
    assert (work / "back").read_bytes() == (work / "data").read_bytes()
    run("sftp", *options, "-b", "-", "hello", stdin=f"rename there moved\nget moved {work}/again\n")
    assert (work / "again").read_bytes() == (work / "data").read_bytes()
    # The far end of rsync is what it asks for over ssh: it greets with its version, in four bytes.
    greeting = subprocess.run(
        ["ssh", *options, "hello", "timeout 2 rsync --server --sender -e.LsfxCIvu . moved"],
        env=admin.environment, input=b"\x1f\0\0\0", capture_output=True, timeout=60,
    )  # fmt: skip
    assert greeting.stdout[0] in range(28, 40), greeting
    if shutil.which("rsync"):
        run("rsync", "-e", f"ssh {' '.join(options)}", str(work / "data"), "hello:by-rsync")
    assert run("ssh", *options, "-T", "hello", "bash", stdin="sha256sum < moved; exit\n") == (
        f"{hashlib.sha256((work / 'data').read_bytes()).hexdigest()}  -\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = f"python3 -m http.server --bind 127.0.0.1 {served} 2>&1 | sed -u 's/.*Serving.*/there/'"
    forward = ["ssh", *options, "-L", f"127.0.0.1:{port}:127.0.0.1:{served}", "hello", f"PYTHONUNBUFFERED=1 {serve}"]
    tunnel = subprocess.Popen(forward, env=admin.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert tunnel.stdout is not None
        assert tunnel.stdout.readline() == "there\n"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET /moved HTTP/1.0\r\n\r\n")
            assert connection.recv(15).startswith(b"HTTP/1.0 200")
    finally:
        tunnel.kill()
        tunnel.communicate()
    # Whoever carried it through the server sees that ssh is gone, and ends by itself.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any("ssh-proxy" in each for each in started({})) and time.monotonic() < deadline:
        time.sleep(0.1)


def test_two_tenants_on_one_node_do_not_reach_each_other(admin: Person, work: Path) -> None:
    other = Person(work / "other")
    admin("admin", "user", "create", "eve@example.org", "--password-stdin", stdin="correct horse battery\n")
    admin("admin", "org", "create", "evil", "--admin", "eve@example.org")
    server = json.loads((admin.home / "config.json").read_text())["server"]
    other("login", server, "--email", "eve@example.org", "--password-stdin", stdin="correct horse battery\n")
    other("project", "create", "plots")
    other("project", "use", "plots")
    other.key()
    other("launch", "spy", "--offer", "h100-1")
    other("show", "hello", code=4)

    address = admin.says("hello", "hostname -I")
    admin.says("hello", "nohup python3 -m http.server 8080 > /dev/null 2>&1 & sleep 1; curl -s localhost:8080 | wc -c")
    assert admin.says("hello", f"curl -s -o /dev/null -w '%{{http_code}}' http://{address}:8080") == "200"
    assert other.ssh("spy", f"curl -s -m 2 http://{address}:8080").returncode == 28  # silence
    port = admin.json("show", "hello")["endpoint"]["port"]
    for here in own_addresses():
        with socket.create_connection((here, port), timeout=10) as connection:
            assert connection.recv(4) == b"SSH-"  # for everybody else it answers there
        for each in (port, int(server.rpartition(":")[2]), 22):
            assert not answers(other, "spy", here, each)
    assert not answers(other, "spy", address, 22)
    assert answers(other, "spy", "127.0.0.1", 9)  # by refusing: whoever is there and asked says something
    assert other.ssh("spy", "ls /dev | grep -c '^nvidia[0-9]'").stdout.strip() == "1"
    borrowed = other.home / ".ssh/id_ed25519"
    shutil.copy(borrowed, work / "stolen")
    assert other.ssh("spy", "true").returncode == 0
    shown = admin.json("show", "hello")["endpoint"]
    refused = subprocess.run(
        ["ssh", "-F", "none", "-i", work / "stolen", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
         "-o", f"UserKnownHostsFile={work / 'none'}", "-p", str(shown["port"]), f"gpu@{shown['host']}", "true"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "Permission denied" in refused.stderr


def answers(person: Person, machine: str, host: str, port: int) -> bool:
    """Whether anything comes back from there, be it a refusal."""
    return person.ssh(machine, f"timeout 2 bash -c '</dev/tcp/{host}/{port}'").returncode != SILENCE


def own_addresses() -> list[str]:
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    return [each for each in found if ":" not in each]


def assert_eventually_active(person: Person, machine: str) -> None:
    import time

    deadline = time.monotonic() + 30
    while person.json("show", machine)["state"] != "active" or person.ssh(machine, "true").returncode != 0:
        assert time.monotonic() < deadline, person.json("show", machine)
        time.sleep(0.2)
