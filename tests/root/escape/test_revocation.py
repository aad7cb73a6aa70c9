"""T24 on the node: who loses their key loses their sessions and all that these have started, and nobody else does."""

import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Person, Tenant

pytestmark = needs("runc", "catatonit", "ssh")
DEATH_SECONDS = 2.0
ROUNDS, EACH = 25, 4
# In the session, in one of its own, by nohup, in tmux, and as root: each says who started it.
LEAVE = """
sleep 1000.{n} &
setsid sleep 1001.{n} &
nohup sleep 1002.{n} >/dev/null 2>&1 &
tmux -L t{n} new-session -d 'sleep 1003.{n}'
sudo setsid sleep 1004.{n} &
(setsid sh -c 'setsid sleep 1005.{n} & exit' &)
python3 -m http.server --bind 127.0.0.1 {port} >/dev/null 2>&1 &
for i in $(seq 100); do (echo > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.05; done
echo there
sleep 2000.{n}
"""


@pytest.fixture
def open_session() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    opened: list[subprocess.Popen[str]] = []

    def make(tenant: Tenant, command: str, *options: str, by: Person) -> subprocess.Popen[str]:
        session = tenant.session(command, *options, by=by)
        opened.append(session)
        assert session.stdout is not None
        assert session.stdout.readline() == "there\n"
        return session

    yield make
    for session in opened:
        session.kill()
        session.communicate()


def sleeping(tenant: Tenant, by: Person) -> set[str]:
    """The sleeps that run inside, by their argument."""
    done = tenant.ssh("ps -eo args --no-headers", by=by)
    assert done.returncode == 0, done.stderr
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("sleep ")}


def forwards(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return bool(connection.recv(1))
    return False


def left_of(tenant: Tenant, ending: str) -> list[str]:
    """By the kernel's list, from outside."""
    listed = subprocess.run(["ps", "-eo", "uid,args", "--no-headers"], capture_output=True, text=True).stdout
    uids = range(tenant.body.uid_base, tenant.body.uid_base + 65536)
    lines = [line.split(None, 1) for line in listed.splitlines()]
    return [args for uid, args in lines if int(uid) in uids and args.startswith("sleep ") and args.endswith(ending)]


def test_a_removed_key_ends_all_that_came_of_it(
    tenant: Launch, open_session: Callable[..., subprocess.Popen[str]]
) -> None:
    machine = tenant(people=2)
    out, stays = machine.people
    sessions = {}
    for number, each in enumerate((out, stays), 1):
        forward = ("-L", f"127.0.0.1:{21700 + number}:127.0.0.1:{8000 + number}")
        script = LEAVE.format(n=number, port=8000 + number)
        sessions[number] = open_session(machine, script, *forward, by=each)
    assert len(left_of(machine, ".1")) >= 7
    assert len(left_of(machine, ".2")) >= 7
    assert forwards(21701)
    assert forwards(21702)
    assert machine.host.sample(machine.id).sessions == 2  # type: ignore[union-attr]

    began = time.monotonic()
    machine.admit(stays)
    while left_of(machine, ".1") or sessions[1].poll() is None:
        assert time.monotonic() - began < DEATH_SECONDS, left_of(machine, ".1")
    assert not forwards(21701)
    assert forwards(21702)
    assert sessions[2].poll() is None
    assert len(left_of(machine, ".2")) >= 7
    assert machine.ssh("true", by=out).returncode == 255
    assert sleeping(machine, stays) >= {f"{1000 + i}.2" for i in range(6)}

    news = [each for each in machine.host.news() if each.id == machine.id]
    closed = {each.data["session"]: each.data["reason"] for each in news if each.kind == "session.closed"}
    of = {each.data["session"]: each.data["user_id"] for each in news if each.kind == "session.opened"}
    assert [of[session] for session, reason in closed.items() if "taken away" in reason] == [out.key.user_id]


def test_what_an_ended_session_has_left_ends_with_its_key(tenant: Launch) -> None:
    machine = tenant(people=2)
    out, stays = machine.people
    assert machine.ssh("setsid sleep 3000.1 >/dev/null 2>&1 & disown; exit", by=out).returncode == 0
    assert machine.ssh("setsid sleep 3000.2 >/dev/null 2>&1 & disown; exit", by=stays).returncode == 0
    assert left_of(machine, ".1")
    machine.admit(stays)
    assert not left_of(machine, ".1")
    assert left_of(machine, ".2")


def test_a_key_that_becomes_somebody_elses_is_taken_from_the_first(tenant: Launch) -> None:
    machine = tenant(people=2)
    out, other = machine.people
    assert machine.ssh("setsid sleep 3001.1 >/dev/null 2>&1 & disown; exit", by=out).returncode == 0
    handed_on = Person(out.file, type(out.key)(other.key.user_id, out.key.line, out.key.fingerprint))
    machine.admit(handed_on)
    assert not left_of(machine, ".1")


@pytest.mark.slow
def test_nobody_stays_who_connects_while_the_key_goes(tenant: Launch) -> None:
    machine = tenant(people=2)
    out, stays = machine.people
    began = time.monotonic()
    assert machine.ssh("true", by=out).returncode == 0
    login_seconds = time.monotonic() - began
    inside = 0
    for number in range(ROUNDS):
        machine.admit(out, stays)
        sessions = []
        for _ in range(EACH):
            sessions.append(machine.session("echo there; exec sleep 4000.1", by=out))
            time.sleep(0.02)
        # Across all of what happens between connecting and a shell.
        time.sleep(2 * login_seconds * number / ROUNDS)
        if number == ROUNDS - 1:
            assert sessions[0].stdout is not None
            inside += sessions[0].stdout.readline() == "there\n"
        machine.admit(stays)
        inside += sum("there" in session.communicate(timeout=3 * DEATH_SECONDS)[0] for session in sessions)
        assert not left_of(machine, ".1")
    assert 0 < inside < ROUNDS * EACH, "no round came before, or none after the key was taken away"


def test_logins_are_on_record_with_who_they_were(tenant: Launch) -> None:
    machine = tenant(people=2)
    for each in machine.people:
        assert machine.ssh("true", by=each).returncode == 0
    stranger = Tenant(machine.node, machine.people[0].file.parent, 3)
    assert machine.ssh("true", by=stranger.people[0]).returncode == 255
    assert through_the_server(machine, machine.people[1], "203.0.113.7") == 0
    deadline = time.monotonic() + 5
    while sum(each.kind == "session.closed" for each in machine.host.news()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    news = [each for each in machine.host.news() if each.id == machine.id]
    opened = [each.data for each in news if each.kind == "session.opened"]
    first, second = (each.key for each in machine.people)
    assert [(each["user_id"], each["fingerprint"], each["source"]) for each in opened] == [
        (first.user_id, first.fingerprint, "127.0.0.1"),
        (second.user_id, second.fingerprint, "127.0.0.1"),
        (second.user_id, second.fingerprint, "203.0.113.7"),
    ]
    assert sorted(each.data["session"] for each in news if each.kind == "session.closed") == sorted(
        each["session"] for each in opened
    )


def through_the_server(tenant: Tenant, by: Person, source: str) -> int:
    """As the agent does it: bytes go back and forth between somebody and the stream."""
    alias = f"HostKeyAlias=[127.0.0.1]:{tenant.body.ssh_port}"
    with tenant.host.connect(tenant.id, source) as stream, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = tenant.command("-o", alias, f"ssh://gpu@127.0.0.1:{port}", "true", by=by)
        words[words.index("-p") : words.index("-p") + 2] = []
        somebody = subprocess.Popen(words)
        with server.accept()[0] as connection:
            other = {stream: connection, connection: stream}
            # Either may be gone before the other has said its last.
            with suppress(ConnectionError):
                while ready := select.select(list(other), [], [], 30)[0]:
                    for each in ready:
                        if not (data := each.recv(65536)):
                            raise ConnectionResetError
                        other[each].sendall(data)
        return somebody.wait(30)


def test_roots_word_about_who_came_is_not_taken(tenant: Launch) -> None:
    """Root inside cannot have a session go by another's key, to keep it when their own is taken away."""
    machine = tenant(people=2)
    out, stays = machine.people
    line = f"Accepted publickey for gpu from 1.1.1.1 port 1 ssh2: ED25519 {stays.key.fingerprint}"
    forging = machine.session(
        "sudo sh -c 'echo there; "
        f'while :; do for p in /proc/[0-9]*/fd/2; do echo "{line}" 2>/dev/null >$p; done; done\' 2>/dev/null',
        by=out,
    )
    assert forging.stdout is not None
    assert forging.stdout.readline() == "there\n"
    try:
        for _ in range(6):
            assert machine.ssh("setsid sleep 5000.1 >/dev/null 2>&1 & exit", by=out).returncode == 0
    finally:
        forging.kill()
        forging.communicate()
    news = [each.data["user_id"] for each in machine.host.news() if each.kind == "session.opened"]
    assert set(news) == {out.key.user_id}
    machine.admit(stays)
    assert not left_of(machine, ".1")
