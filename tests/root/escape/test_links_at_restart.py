"""T1: a tenant's tree decides at the next start what the runtime finds. It leads nobody out, and holds nobody up."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Tenant

pytestmark = needs("runc", "catatonit", "ssh")
START_SECONDS = 20
FILES = ("hosts", "hostname", "resolv.conf", "machine-id")
# $FILE is one of them. Twins: what a path of the host's leads to in the tree.
KINDS = {
    "a link to the host": 'ln -s "$CANARY/file" "$FILE"',
    "a link with a twin": 'mkdir -p ".$CANARY"; touch ".$CANARY/file"; ln -s "$CANARY/file" "$FILE"',
    "a link out": 'ln -s "../../../../../../../../$CANARY/file" "$FILE"',
    "a link through proc": 'ln -s "/proc/1/root$CANARY/file" "$FILE"',
    "a link to nothing": 'ln -s /nowhere/at/all "$FILE"',
    "a loop": 'ln -s "$(basename $FILE)" "$FILE"',
    "a hard link": 'ln etc/shadow "$FILE"',
    "a large directory": 'mkdir "$FILE"; cd "$FILE"; seq 5000 | xargs touch; cd - >/dev/null',
    "a pipe": 'mkfifo "$FILE"',
    "a socket": 'python3 -c "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])" "$FILE"',
    "nothing": ":",
}
# A file may be mounted on these: whatever they are is hidden, and nobody opens it.
HIDDEN = ("a hard link", "a pipe", "a socket", "nothing")
# Of the others: what was started is looked at and ended, or the runtime does not find its way.
REFUSALS = {"a loop": "ended with", "a large directory": "ended with"}
# Those that would wait for somebody, do something when they are opened, or hide what lies below them.
DEVICES = {
    "null": "c 1 3",
    "the host's memory": "c 1 1",
    "a terminal": "c 5 0",
    "the console": "c 5 1",
    "a disk": "b 7 0",
    "a whiteout": "c 0 0",
}
# Where views of the platform's are mounted: $PLACE is one of these or a directory above it.
PLACES = ("opt", "opt/gpuaas", "opt/gpuaas/runtimes", "etc/gpuaas")
LEADS = {
    "to the host": 'ln -s "$CANARY" "$PLACE"',
    "to the host, with a twin": 'mkdir -p ".$CANARY"; ln -s "$CANARY" "$PLACE"',
    "to proc": 'ln -s /proc/1/root "$PLACE"',
    "to what hides others": 'ln -s /etc "$PLACE"',
    "nowhere": 'mkfifo "$PLACE"',
}


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A directory of the host's that everybody may write to."""
    directory = tmp_path / "canary"
    directory.mkdir()
    directory.chmod(0o777)
    (directory / "file").write_text("the host's")
    (directory / "file").chmod(0o666)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_mode & 0o005 != 0o005 and str(parent).startswith(str(tmp_path.parents[1])):
            parent.chmod(0o755)
    before = directory.stat().st_mtime_ns
    yield directory
    assert [each.name for each in directory.iterdir()] == ["file"]
    assert (directory / "file").read_text() == "the host's"
    assert directory.stat().st_mtime_ns == before


def refused(tenant: Tenant, *names: str) -> None:
    with pytest.raises(HostError, match="must be real directories") as error:
        tenant.launch()
    assert all(f"/{name}" in error.value.cause for name in names), error.value.cause
    assert not error.value.transient
    machine = tenant.host.container(tenant.id)
    assert machine is None or not machine.running


def test_what_a_tenant_replaces_from_inside(tenant: Launch, canary: Path) -> None:
    machine = tenant()
    moved = machine.root(f"mkdir -p {canary}; mv /home /home2 && ln -s {canary} /home && mv /etc /etc2 && ln -s / /etc")
    assert moved.returncode == 0, moved.stderr
    machine.stop()
    refused(machine, "home", "etc")


def test_what_a_mount_hides_while_it_runs(tenant: Launch, canary: Path) -> None:
    machine = tenant()
    busy = machine.root("for each in dev proc sys run; do mv /$each /other-$each && echo moved; done")
    assert busy.stdout == ""
    machine.stop()
    names = ("dev", "proc", "sys", "run")
    for name in names:
        machine.plant(f"mkdir -p .{canary}; mv {name} {name}2; ln -s {canary} {name}")
    refused(machine, *names)
    for name in names:
        machine.plant(f"rm {name}; touch {name}")
    refused(machine, *names)
    for name in names:
        machine.plant(f"rm {name}; mkdir {name}")
    machine.launch()
    assert machine.ssh("true").returncode == 0


def test_no_tenant_makes_a_device(tenant: Launch) -> None:
    machine = tenant()
    tries = "; ".join(f"mknod /tmp/{number} {kind} && echo made" for number, kind in enumerate(DEVICES.values()))
    assert machine.root(f"exec 2>/dev/null; {tries}").stdout == ""


@pytest.mark.parametrize("kind", DEVICES)
def test_a_device_where_something_is_mounted(tenant: Launch, canary: Path, kind: str) -> None:
    """Nobody opens it: the platform's file lies over it. In the place of a directory, the start is refused."""
    machine = tenant(launch=False)
    machine.prepare()
    for name in FILES:
        machine.plant(f"rm -f etc/{name}; mknod etc/{name} {DEVICES[kind]} || rm -f etc/{name}", with_rights=True)
    began = time.monotonic()
    machine.launch()
    assert machine.ssh("cat /etc/hostname").stdout == "machine-0\n"
    assert machine.ssh("stat -c %F /etc/hostname /etc/hosts").stdout == "regular file\nregular file\n"
    machine.stop()
    for name in ("dev", "proc", "sys", "run"):
        machine.plant(f"mv {name} {name}2; mknod {name} {DEVICES[kind]} || true", with_rights=True)
    refused(machine, "dev", "proc", "sys", "run")
    machine.release()
    assert time.monotonic() - began < START_SECONDS


@pytest.mark.parametrize("lead", LEADS)
def test_what_views_are_mounted_on(tenant: Launch, canary: Path, lead: str) -> None:
    """T4: what is mounted is mounted where it belongs, or nowhere: never where a link leads."""
    machine = tenant()
    usual = mounted(machine)
    for place in PLACES:
        machine.stop()
        machine.plant(f"rm -rf opt etc/gpuaas; mkdir -p opt/gpuaas; rm -rf {place}")
        machine.plant(f"CANARY={canary}; PLACE={place}; {LEADS[lead]}")
        machine.restart()
        assert set(mounted(machine)) <= set(usual)


def mounted(machine: Tenant) -> list[str]:
    table = machine.ssh("cut -d' ' -f5 /proc/self/mountinfo").stdout.split()
    assert len(set(table)) == len(table), "one hides another"
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_platforms_files_are_mounted_on(tenant: Launch, canary: Path, kind: str) -> None:
    machine = tenant(launch=False)
    machine.prepare()
    for name in FILES:
        machine.plant(f"CANARY={canary}; FILE=etc/{name}; rm -f $FILE; {KINDS[kind]}")
    began = time.monotonic()
    if kind in HIDDEN:
        machine.launch()
        assert machine.ssh("cat /etc/hostname").stdout == "machine-0\n"
        assert machine.root("echo >> /etc/hosts").returncode != 0
    else:
        with pytest.raises(HostError) as error:
            machine.launch()
        assert REFUSALS.get(kind, "nothing is mounted on /etc/hosts") in error.value.cause
        assert machine.host.container(machine.id) is None
    machine.release()
    assert time.monotonic() - began < START_SECONDS
