"""Runtimes on real machines, seen over real ssh: shown, switched and taken away while they run."""

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuaas.kit.errors import HostError
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.runtimes.shared import Shared
from gpuaas.node.host.runtimes.store import Store
from gpuaas.node.upkeep import Upkeep
from gpuaas.wire.node import Condition, RuntimeSpec
from node.samples import ID, OTHER_ID
from node.test_host_contract import make, remove, wanted
from root.conftest import needs
from root.erofs import Image, erofs, python, small
from root.linux import Keyed, Node, World

pytestmark = needs("mkfs.erofs", "runc", "catatonit", "nft", "ssh", "ssh-keygen")
PLACE = "/opt/gpuaas/runtimes"
SETXATTR = {"x86_64": 188, "aarch64": 5}[os.uname().machine]  # machines have no setfattr


@pytest.fixture
def world(node: Node, work: Path) -> World:
    return World(node, Keyed(work))


@pytest.fixture
def one(world: World, work: Path) -> Image:
    made = small(work, "1.0")
    made.add(world.node.host)
    return made


@pytest.fixture
def two(world: World, work: Path) -> Image:
    made = small(work, "2.0")
    made.add(world.node.host)
    return made


def apply(world: World, *runtimes: RuntimeSpec) -> list[tuple[str, str, str, bool]]:
    return told(world.launch(runtimes=list(runtimes)))


def told(condition: Condition) -> list[tuple[str, str, str, bool]]:
    assert condition.state == "ready", condition
    return [(each.bundle, each.version, each.state, each.current) for each in condition.runtimes]


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_runtime_comes_is_switched_and_goes_while_the_machine_runs(world: World, one: Image, two: Image) -> None:
    assert apply(world) == []
    before = world.machine()
    assert apply(world, one.spec("tool", "1.0")) == [("tool", "1.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool; readlink {PLACE}/tool/current") == "1.0\n1.0"
    both = [one.spec("tool", "1.0", current=False), two.spec("tool", "2.0")]
    assert apply(world, *both) == [("tool", "1.0", "ready", False), ("tool", "2.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool; {PLACE}/tool/1.0/bin/tool") == "2.0\n1.0"
    back = [one.spec("tool", "1.0"), two.spec("tool", "2.0", current=False)]
    assert apply(world, *back) == [("tool", "1.0", "ready", True), ("tool", "2.0", "ready", False)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool; stat -c %U:%G {PLACE}/tool/1.0/bin/tool") == "1.0\nroot:root"
    assert apply(world) == []
    assert world.ssh(f"find {PLACE} -mindepth 1; grep -c erofs /proc/self/mountinfo || true") == "0"
    assert world.machine() == before


@pytest.mark.acceptance("D05")
def test_nobody_writes_there_not_even_root(world: World, one: Image) -> None:
    apply(world)
    writes = (
        "touch {0}/new",
        "mkdir {0}/new",
        "chmod 777 {0}",
        "ln -s x {0}/new",
        "chown gpu {0}",
        f'perl -e "@it = (q({{0}}), q(user.x), q(1)); syscall({SETXATTR}, @it, 1, 0) == 0 or die \\$!"',
        "truncate -s 0 {0}/new",
    )
    for place in (PLACE, f"{PLACE}/tool", f"{PLACE}/tool/1.0", f"{PLACE}/tool/1.0/lib"):
        if place.endswith("tool"):
            apply(world, one.spec("tool", "1.0"))
        for write in writes:
            said = world.ssh(f"LANG=C sudo sh -c '{write.format(place)}' 2>&1; true")
            assert "Read-only file system" in said, (write, place)
    for undo in (f"rm {PLACE}/tool/current", f"mv {PLACE}/tool {PLACE}/other", f"rm -r {PLACE}/tool/1.0/lib"):
        assert "Read-only file system" in world.ssh(f"LANG=C sudo {undo} 2>&1; true")
    for undo in (f"umount {PLACE}/tool/1.0", f"umount -l {PLACE}", f"mount -o remount,rw {PLACE}"):
        assert world.ssh(f"sudo {undo} >/dev/null 2>&1 && echo done; true") == ""
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "1.0"


def test_the_machine_learns_nothing_about_the_host(world: World, one: Image) -> None:
    apply(world, one.spec("tool", "1.0"))
    table = world.ssh(f"grep {PLACE} /proc/self/mountinfo")
    assert str(world.node.config.paths.state) not in table
    assert one.digest not in table


def test_another_allocation_sees_only_its_own_and_both_share_the_image(world: World, one: Image, two: Image) -> None:
    apply(world, one.spec("tool", "1.0"))
    host = world.node.host
    other = replace(wanted(host, 1), keys=[world.person.spec], memory_mib=256)
    other = replace(other, runtimes=[one.spec("again", "7"), two.spec("tool", "2.0")])
    make(host, OTHER_ID, other)
    assert {(each.bundle, each.state) for each in host.runtimes_ensure(OTHER_ID, other)} == {
        ("again", "ready"),
        ("tool", "ready"),
    }
    said = subprocess.run(
        world.person.ssh(other.ssh_port, f"cd {PLACE} && ls -d */*; stat -c %d again/7; cat /etc/gpuaas/runtime.env"),
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    assert said.startswith("again/7\nagain/current\ntool/2.0\ntool/current\n")
    assert OTHER_ID in said
    assert ID not in said
    assert world.ssh(f"cd {PLACE} && ls -d */*; stat -c %d tool/1.0") == (
        f"tool/1.0\ntool/current\n{said.splitlines()[4]}"
    )
    remove(host, OTHER_ID, other)


def test_two_machines_that_get_it_at_once_share_one_mount(world: World, one: Image, two: Image) -> None:
    host = world.node.host
    bodies = {ID: world.body, OTHER_ID: replace(wanted(host, 1), memory_mib=256)}
    for id, body in bodies.items():
        make(host, id, body)
    runtimes = [one.spec("tool", "1.0"), two.spec("tool", "2.0", current=False)]

    def show(id: str) -> set[str]:
        return {each.state for each in host.runtimes_ensure(id, replace(bodies[id], runtimes=runtimes))}

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(show, bodies)) == [{"ready"}, {"ready"}]
    images = [each.target for each in mounts.mounts() if each.filesystem == "erofs"]
    assert sorted(Path(each).name for each in images) == sorted([one.digest, two.digest])
    for id, body in bodies.items():
        remove(host, id, body)


def test_an_image_that_is_not_here_changes_nothing_until_it_is(world: World, one: Image, work: Path) -> None:
    apply(world, one.spec("tool", "1.0"))
    late = small(work, "3.0")
    wanted = [one.spec("tool", "1.0", current=False), late.spec("tool", "3.0")]
    assert apply(world, *wanted) == [("tool", "1.0", "ready", True), ("tool", "3.0", "fetching", False)]
    world.node.host.image_append(late.digest, 0, late.data[: len(late.data) // 2])
    world.runner.fetched(late.digest, [ID])
    assert [each.percent for each in world.settle().runtimes] == [None, 50]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool; ls {PLACE}/tool") == "1.0\n1.0\ncurrent"
    late.add(world.node.host)
    world.runner.fetched(late.digest, [ID])
    assert told(world.settle()) == [("tool", "1.0", "ready", False), ("tool", "3.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "3.0"


def test_what_cannot_be_mounted_fails_and_leaves_the_version_before(world: World, one: Image) -> None:
    broken = Image(b"no file system" * 1000)
    broken.add(world.node.host)
    apply(world, one.spec("tool", "1.0"))
    wanted = [one.spec("tool", "1.0", current=False), broken.spec("tool", "9")]
    assert apply(world, *wanted) == [("tool", "1.0", "ready", True), ("tool", "9", "failed", False)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool; ls {PLACE}/tool") == "1.0\n1.0\ncurrent"
    upkeep = Upkeep(world.runner, world.clock)
    assert world.node.host.images_unread() == {broken.digest: False}
    assert upkeep.read_behind() is None
    world.clock.advance(3600)
    assert world.runner.wanted() == [ID], "it is tried again"
    assert world.settle().runtimes[1].code == "image_unusable"
    assert world.node.host.images_unread() == {}, "but not read all the time"


def test_what_could_not_be_mounted_is_shown_as_soon_as_it_can_be(world: World, one: Image) -> None:
    apply(world)
    place = world.node.config.paths.run / "images"
    place.symlink_to("nowhere")
    assert apply(world, one.spec("tool", "1.0")) == [("tool", "1.0", "failed", False)]
    place.unlink()
    assert world.runner.wanted() == []
    world.clock.advance(1)
    assert told(world.settle()) == [("tool", "1.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "1.0"


def test_it_outlives_a_restart_an_agent_and_a_reboot(world: World, one: Image, two: Image) -> None:
    runtimes = [one.spec("tool", "1.0"), two.spec("tool", "2.0", current=False)]
    shown = [("tool", "1.0", "ready", True), ("tool", "2.0", "ready", False)]
    assert apply(world, *runtimes) == shown
    assert told(world.restart()) == shown
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "1.0"
    world.agent()
    assert told(world.settle()) == shown
    world.node.host.shut_down()
    world.agent()
    assert told(world.settle()) == shown
    said = world.ssh(f"cd {PLACE}/tool; current/bin/tool; 2.0/bin/tool; grep -c VERSION /etc/gpuaas/runtime.env")
    assert said == "1.0\n2.0\n1"


def test_a_machine_without_a_place_for_them_says_what_to_do(world: World, one: Image) -> None:
    """As one that an older agent has started: this one's owner had moved /opt away."""
    apply(world)
    world.ssh("sudo mv /opt /opt.old && sudo ln -s /home /opt")
    assert world.restart().state == "ready"
    world.launch(runtimes=[one.spec("tool", "1.0")])
    (report,) = world.settle().runtimes
    assert (report.state, report.code) == ("failed", "no_place")
    assert "Restart it first" in report.message
    assert world.ssh("ls /home; grep -c gpuaas/runtimes /proc/self/mountinfo; true") == "gpu\n0"
    world.ssh("sudo rm /opt")
    assert told(world.restart()) == [("tool", "1.0", "ready", True)]
    assert world.ssh("gpuaas-runtime current") == "tool:1.0"


def test_who_runs_a_version_keeps_it_and_all_that_it_may_still_load(world: World, work: Path) -> None:
    old, new = python(work, "3"), python(work, "4")
    for image in (old, new):
        image.add(world.node.host)
    apply(world, old.spec("python", "3"))
    upkeep = Upkeep(world.runner, world.clock, unused_seconds=0)
    program = "import sys; print('runs', flush=True); sys.stdin.readline(); import late; print(late.said, flush=True)"
    command = world.person.ssh(world.body.ssh_port, f'gpuaas-runtime use python -- python3 -c "{program}"')
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        apply(world, old.spec("python", "3", current=False), new.spec("python", "4"))
        assert world.ssh("gpuaas-runtime use python -- python3 -c 'import late; print(late.said)'") == "4"
        apply(world, new.spec("python", "4"))  # nobody is to have the old one any more
        assert world.ssh("gpuaas-runtime current") == "python:4"
        assert world.node.host.runtimes_busy() == {ID}
        assert upkeep.make_room() == []
        assert process.communicate("go\n", timeout=60)[0] == "3\n"
    until(lambda: _is_hidden(world, upkeep))
    assert world.ssh(f"cd {PLACE} && ls -d */*") == "python/4\npython/current"
    assert upkeep.make_room() == [old.digest]
    assert set(world.node.host.images()) == {new.digest}


def _is_hidden(world: World, upkeep: Upkeep) -> bool:
    upkeep.tidy()
    world.settle()
    return not world.node.host.runtimes_busy()


def test_a_flipped_byte_is_found_and_healed_under_a_running_machine(world: World, one: Image) -> None:
    apply(world, one.spec("tool", "1.0"))
    upkeep = Upkeep(world.runner, world.clock, scrub_seconds=-1e9)
    assert upkeep.scrub() is None
    file = world.node.config.paths.runtimes / f"{one.digest}.erofs"
    changed = bytearray(one.data)
    changed[one.data.index(b"echo 1.0") + 5] = ord("9")
    with file.open("r+b") as opened:
        opened.write(changed)
    assert upkeep.scrub() == one.digest
    (report,) = world.settle().runtimes
    assert (report.state, report.code, report.current) == ("fetching", "image_damaged", True)
    (missing,) = world.runner.missing()
    one.add(world.node.host)
    world.runner.fetched(missing.digest, missing.ids)
    assert told(world.settle()) == [("tool", "1.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "1.0"
    assert apply(world) == []
    assert world.ssh(f"find {PLACE} -mindepth 1") == ""


@pytest.mark.parametrize("is_shown", [False, True], ids=["anew", "shown to another"])
def test_a_flipped_byte_is_found_by_the_next_apply(world: World, one: Image, two: Image, is_shown: bool) -> None:
    """T47: refused, thrown away, fetched and verified; meanwhile the version before stays."""
    host, other = world.node.host, replace(wanted(world.node.host, 1), memory_mib=256)
    if is_shown:
        make(host, OTHER_ID, other)
        assert host.runtimes_ensure(OTHER_ID, replace(other, runtimes=[two.spec("tool", "2.0")]))[0].state == "ready"
    apply(world, one.spec("tool", "1.0"))
    upkeep = Upkeep(world.runner, world.clock)
    file = world.node.config.paths.runtimes / f"{two.digest}.erofs"
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(two.data.index(b"echo 2.0") + 5)
        opened.write(b"9")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # they did not want it to be seen
    both = [one.spec("tool", "1.0", current=False), two.spec("tool", "2.0")]
    assert apply(world, *both) == [("tool", "1.0", "ready", True), ("tool", "2.0", "fetching", False)]
    assert world.settle().runtimes[1].code == "reading"
    assert upkeep.read_again() == [two.digest]
    (_, report) = world.settle().runtimes
    assert (report.state, report.code) == ("fetching", "image_damaged")
    assert world.ssh(f"{PLACE}/tool/current/bin/tool; ls {PLACE}/tool") == "1.0\n1.0\ncurrent"
    (missing,) = world.runner.missing()
    two.add(host)
    world.runner.fetched(missing.digest, missing.ids)
    assert told(world.settle()) == [("tool", "1.0", "ready", False), ("tool", "2.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "2.0"
    assert upkeep.read_again() == []
    if is_shown:
        remove(host, OTHER_ID, other)


@pytest.mark.parametrize("mounts", [True, False], ids=["a file of it", "what the kernel checks"])
def test_what_changes_below_the_file_system_is_found_behind_the_apply(world: World, work: Path, mounts: bool) -> None:
    """As far as its file says nobody wrote to it: it was read so long ago that it is read again all the same."""
    tool = work / "large" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\necho 1.0\n#{'-' * 20_000}\n")  # in blocks of its own, which nothing checks
    tool.chmod(0o755)
    one, place = erofs(work / "large"), world.node.config.paths.runtimes
    one.add(world.node.host)
    changed, at = bytearray(one.data), one.data.index(b"echo 1.0") + 5 if mounts else 1100
    changed[at] ^= 1
    file = place / f"{one.digest}.erofs"
    file.write_bytes(changed)
    os.utime(file, (1, 1))
    now = file.stat()
    said = f"{now.st_ino} {now.st_size} {now.st_mtime_ns} {now.st_ctime_ns}"
    (place / f".{one.digest}.read").write_text(said)
    world.agent()
    upkeep = Upkeep(world.runner, world.clock)
    assert apply(world, one.spec("tool", "1.0")) == [("tool", "1.0", "ready" if mounts else "failed", mounts)]
    assert upkeep.read_again() == []
    assert upkeep.read_behind() == one.digest
    assert world.settle().runtimes[0].code == "image_damaged"
    (missing,) = world.runner.missing()
    one.add(world.node.host)
    world.runner.fetched(missing.digest, missing.ids)
    assert told(world.settle()) == [("tool", "1.0", "ready", True)]
    assert world.ssh(f"{PLACE}/tool/current/bin/tool") == "1.0"
    assert upkeep.read_behind() is None


def test_the_descriptor_and_the_program_that_reads_it(world: World, one: Image, two: Image) -> None:
    apply(world)
    assert world.ssh("cat /etc/gpuaas/runtime.env") == f"GPUAAS_ALLOCATION_ID='{ID}'\nGPUAAS_RUNTIMES=''"
    apply(world, one.spec("tool", "1.0", current=False), two.spec("tool", "2.0"))
    text = world.ssh("cat /etc/gpuaas/runtime.env")
    assert text == "\n".join(
        (
            f"GPUAAS_ALLOCATION_ID='{ID}'",
            "GPUAAS_RUNTIMES='tool'",
            "GPUAAS_RUNTIME_TOOL_VERSION='2.0'",
            f"GPUAAS_RUNTIME_TOOL_ROOT='{PLACE}/tool/2.0'",
            f"GPUAAS_RUNTIME_TOOL_DIGEST='sha256:{two.digest}'",
            f"GPUAAS_RUNTIME_TOOL_ACTIVATE='{PLACE}/tool/2.0/activate.sh'",
            "GPUAAS_RUNTIME_TOOL_APPLIED_AT='2027-01-15T08:00:00Z'",
        )
    )
    assert world.ssh(f"cat /etc/gpuaas/runtime/allocations/{ID}.env; ls /etc/gpuaas/runtime/allocations") == (
        f"{text}\n{ID}.env"
    )
    assert (world.node.config.paths.descriptors / f"{ID}.env").read_text().strip() == text
    assert "Read-only" in world.ssh("LANG=C sudo rm /etc/gpuaas/runtime.env 2>&1; true")
    assert "denied" in world.ssh("LANG=C sudo touch /usr/local/bin/gpuaas-runtime 2>&1; true")
    assert world.ssh("gpuaas-runtime list") == "tool:1.0\n* tool:2.0"
    assert world.ssh("gpuaas-runtime use tool -- tool; gpuaas-runtime use tool:1.0 -- tool") == "2.0\n1.0"
    assert world.ssh("gpuaas-runtime use tool-1.0 -- tool; gpuaas-runtime use tool@1.x -- tool") == "1.0\n1.0"
    assert world.ssh("gpuaas-runtime use tool@latest -- tool; gpuaas-runtime current tool@1.x") == "2.0\ntool:1.0"
    assert "Nearest: tool:1.0 tool:2.0" in world.ssh("gpuaas-runtime use tool-3.0 2>&1; true")
    assert world.ssh("echo 'tool; echo $TOOL_VERSION' | gpuaas-runtime use tool") == "2.0\n2.0"
    assert f"digest      sha256:{two.digest}" in world.ssh("gpuaas-runtime info tool")
    said = world.ssh("gpuaas-runtime use nothing 2>&1; echo $?; gpuaas-runtime use ../../etc 2>&1; echo $?")
    assert said == (
        "gpuaas-runtime: there is no runtime nothing here. There is: tool:1.0 tool:2.0 \n3\n"
        "gpuaas-runtime: '../../etc' is not the name of a runtime\n2"
    )


def test_a_release_leaves_nothing_but_images(world: World, one: Image) -> None:
    apply(world, one.spec("tool", "1.0"))
    assert world.release().state == "gone"
    assert world.node.host.present() == []
    assert world.node.host.images() == {one.digest: len(one.data)}
    assert list(world.node.config.paths.descriptors.iterdir()) == []


@pytest.mark.parametrize("loop", [False, True])
def test_an_image_is_mounted_once_with_and_without_a_loop_device(work: Path, loop: bool) -> None:
    store = Store(work / "store")
    image = small(work, "1.0")
    store.begin(image.digest, len(image.data))
    store.append(image.digest, 0, image.data)
    store.settle(image.digest)
    shared = Shared(work / "images", store, loop=loop)
    try:
        for _ in range(2):
            shared.ensure(image.digest)
        (first,) = [each for each in mounts.mounts() if each.target == f"{work}/images/{image.digest}"]
        assert (first.filesystem, first.propagation) == ("erofs", frozenset())
        assert {"ro", "nosuid", "nodev"} <= first.options
        assert first.source.startswith("/dev/loop" if loop else "/proc/self/fd/")
        assert (Path(first.target) / "lib/data").read_text() == "1.0"
        assert set(shared.mounted()) == {image.digest}
    finally:
        shared.clear()
    assert not (work / "images").exists()
    assert mounts.at(work / "images") is None


def test_a_copy_is_never_of_an_empty_directory(work: Path) -> None:
    """Whoever throws the image's mount away meanwhile waits, or comes first."""
    store = Store(work / "store")
    image = small(work, "1.0")
    store.begin(image.digest, len(image.data))
    store.append(image.digest, 0, image.data)
    store.settle(image.digest)
    shared, ended = Shared(work / "images", store), threading.Event()

    def drop() -> None:
        while not ended.is_set():
            shared.drop(image.digest)

    dropping = threading.Thread(target=drop)
    shared.ensure(image.digest)
    dropping.start()
    try:
        for _ in range(300):
            copy = shared.copy(image.digest)
            try:
                assert os.stat("lib/data", dir_fd=copy).st_size == 3
            finally:
                os.close(copy)
    finally:
        ended.set()
        dropping.join()
        shared.clear()
    assert mounts.at(work / "images") is None


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of its own, filled by somebody else while an image comes: it stops before the last of it."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(place)], check=True)
    try:
        store, data = Store(place / "images"), bytes(4 << 20)
        digest = hashlib.sha256(data * 4).hexdigest()
        assert not store.low()
        assert store.begin(digest, 16 << 20) == 0
        store.append(digest, 0, data)
        (place / "of-a-machine").write_bytes(bytes(33 << 20))
        assert store.low()
        with pytest.raises(HostError, match="2 MiB of the node's disk have to stay free"):
            store.append(digest, 4 << 20, data)
        assert store.parts() == {digest}
        assert store.digests() == {}
        (place / "of-a-machine").unlink()
        for offset in range(4, 16, 4):
            store.append(digest, offset << 20, data)
        store.settle(digest)
        assert store.digests() == {digest: 16 << 20}
    finally:
        os.close(store._dir)
        subprocess.run(["umount", str(place)], check=True)
