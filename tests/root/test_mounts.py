import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.limits import LIMITS
from gpuaas.node.host.mounts import idmaps, loops, mounts, small
from gpuaas.node.host.mounts.mounts import Attribute, Propagation
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.mounts.operations import (
    Bind,
    Directory,
    FileSystem,
    Image,
    Overlay,
    Place,
    Propagate,
    Remove,
    Unmount,
)
from gpuaas.node.host.paths import Paths
from node.samples import ID, OTHER_ID
from root.conftest import needs

SAFE = Attribute.NOSUID | Attribute.NODEV
BASE = 10 * 65536
Inside = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def attached(fd: int, target: Path) -> Iterator[mounts.Mount]:
    target.mkdir(exist_ok=True)
    mounts.attach(fd, target)
    os.close(fd)
    try:
        found = mounts.at(target)
        assert found is not None
        yield found
    finally:
        while mounts.unmount(target, lazy=True):
            pass


@pytest.fixture
def source(work: Path) -> Path:
    """A directory with a file, and another file system below it."""
    (work / "source/below").mkdir(parents=True)
    (work / "source/file").write_text("text")
    return work / "source"


@pytest.fixture
def live(paths: Paths, source: Path) -> Path:
    return paths.make_live(ID)


# mountinfo


def test_reads_the_strangest_line() -> None:
    line = r"36 35 98:0 /a\040b /mnt\134x ro,nosuid shared:1 master:2 - ext4 /dev/\011a rw,errors=continue"
    (mount,) = mounts.parse(line + "\n")
    assert (mount.id, mount.parent, mount.device, mount.root, mount.target) == (36, 35, "98:0", "/a b", "/mnt\\x")
    assert mount.attributes == Attribute.READ_ONLY | Attribute.NOSUID
    assert mount.propagation == {"shared:1", "master:2"}
    assert (mount.filesystem, mount.source, mount.super_options) == ("ext4", "/dev/\ta", {"rw", "errors=continue"})


def test_reads_this_machine() -> None:
    assert mounts.at("/") is not None
    assert mounts.at("/proc").filesystem == "proc"  # type: ignore[union-attr]
    assert mounts.at("/nowhere") is None
    with pytest.raises(HostError, match="process 0"):
        mounts.mounts(0)


def test_finds_a_mount_with_a_strange_name(work: Path) -> None:
    strange = work / "a b\\040\tc#"
    fd = mounts.filesystem("tmpfs", {}, SAFE)
    with attached(fd, strange) as mount:
        assert mount == mounts.at(strange, mounts.mounts())
        assert mount.target == str(strange)
    assert mounts.at(strange) is None


# handles


def test_flags_are_set_before_anybody_can_see_the_mount(source: Path, work: Path) -> None:
    fd = mounts.clone(source)
    mounts.set_attributes(fd, SAFE | Attribute.READ_ONLY | Attribute.NOEXEC)
    with attached(fd, work / "target") as mount:
        assert mount.attributes == SAFE | Attribute.READ_ONLY | Attribute.NOEXEC
        with pytest.raises(OSError, match="Read-only"):
            (work / "target/new").touch()
    assert not mounts.unmount(work / "target")
    assert not mounts.unmount(work / "nowhere")


def test_read_only_is_recursive(work: Path) -> None:
    own = work / "own"
    with attached(mounts.filesystem("tmpfs", {}, Attribute.NONE), own):
        # Where the host's mounts are shared, copies of them would see each other's unmounts.
        mounts.set_propagation(own, Propagation.PRIVATE)
        (own / "source/below").mkdir(parents=True)
        _check_recursion(own / "source", own)


def _check_recursion(source: Path, work: Path) -> None:
    tmpfs = mounts.filesystem("tmpfs", {"size": "64k"}, Attribute.NONE)
    with attached(tmpfs, source / "below"):
        fd = mounts.clone(source, recursive=True)
        mounts.set_attributes(fd, Attribute.READ_ONLY | SAFE)
        with attached(fd, work / "target"):
            below = mounts.at(work / "target/below")
            assert below is not None
            assert below.attributes == Attribute.READ_ONLY | SAFE
            with pytest.raises(OSError, match="Read-only"):
                (work / "target/below/new").touch()
        fd = mounts.clone(source, recursive=True)
        mounts.set_attributes(fd, Attribute.READ_ONLY, recursive=False)
        with attached(fd, work / "target"):
            (work / "target/below/new").touch()  # why it has to be recursive


def test_ids_are_shifted(source: Path, work: Path) -> None:
    os.chown(source / "file", 1000, 1000)
    userns = idmaps.user_namespace(BASE)
    fd = mounts.idmapped(source, userns, SAFE)
    os.close(userns)
    with attached(fd, work / "target") as mount:
        assert "idmapped" in mount.options
        assert mount.attributes == SAFE
        assert (work / "target").stat().st_uid == BASE
        assert (work / "target/file").stat().st_uid == BASE + 1000
        script = f"echo > {work}/target/new"
        subprocess.run(
            ["setpriv", f"--reuid={BASE}", f"--regid={BASE}", "--clear-groups", "sh", "-c", script], check=True
        )
        made = (source / "new").stat()
        assert (made.st_uid, made.st_gid) == (0, 0)
        with pytest.raises(OSError, match="Value too large"):
            (work / "target/of-the-host").touch()  # an id that the map does not have


def test_a_refusal_says_why(work: Path, source: Path) -> None:
    (work / "link").symlink_to(source)
    fd = mounts.clone(source)
    userns = idmaps.user_namespace(BASE)
    for call, words in (
        (lambda: mounts.clone(work / "nowhere"), "no such"),
        (lambda: mounts.filesystem("nosuchfs", {}, SAFE), "does not know"),
        (lambda: mounts.filesystem("tmpfs", {"size": "many"}, SAFE), "size"),
        (lambda: mounts.filesystem("overlay", {"lowerdir": str(work / "no")}, SAFE), "no"),
        (lambda: mounts.attach(fd, work / "link"), "link"),
        (lambda: mounts.attach(fd, source / "file"), "directory and a file"),
        (lambda: mounts.idmapped(Path("/proc"), userns, SAFE), "cannot be mounted with an id map"),
        (lambda: mounts.set_propagation(source, Propagation.SHARED), "nothing is mounted"),
    ):
        with pytest.raises(HostError, match=words):
            call()
    os.close(fd)
    os.close(userns)


# disk images


@needs("mkfs.ext4")
def test_an_image_is_attached_once_and_frees_itself(work: Path) -> None:
    image = work / "layer/disk.ext4"
    image.parent.mkdir()
    LIMITS["image"].prepare(image.parent, 64)
    assert not loops.in_use(image)
    with loops.attached(image) as device:
        assert loops.in_use(image)
        with pytest.raises(HostError, match="in use"), loops.attached(image):
            pass
        fd = mounts.filesystem("ext4", {"source": str(device)}, SAFE)
    assert loops.in_use(image)
    with attached(fd, work / "target") as mount:
        assert mount.source == str(device)
        loops.make_direct()
        assert Path(f"/sys/block/{device.name}/loop/dio").read_text() == "1\n"
    assert not loops.in_use(image)
    assert not loops.in_use(work / "nowhere")
    with pytest.raises(HostError, match="No such"), loops.attached(work / "nowhere"):
        pass


@needs("mkfs.ext4")
def test_many_images_are_attached_at_once(work: Path) -> None:
    def attach(number: int) -> None:
        (work / f"layer{number}").mkdir()
        LIMITS["image"].prepare(work / f"layer{number}", 64)
        with loops.attached(work / f"layer{number}/disk.ext4") as device:
            seen.append(str(device))
            barrier.wait(30)

    seen: list[str] = []
    barrier = threading.Barrier(12)
    threads = [threading.Thread(target=attach, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loops.make_direct()
    assert len(set(seen)) == 12


# namespaces


def test_a_pin_keeps_mounts_that_the_host_does_not_see(namespaces: Namespaces, live: Path, source: Path) -> None:
    namespaces.create(ID, [Directory(str(live / "target")), Bind(str(source), str(live / "target"), uid_base=BASE)])
    assert namespaces.ids() == [ID]
    assert mounts.at(live / "target") is None
    found = mounts.at(live / "target", namespaces.mounts(ID))
    assert found is not None
    assert found.attributes == SAFE
    assert "idmapped" in found.options
    fd = namespaces.open(ID, live / "target/file")
    assert os.fstat(fd).st_uid == BASE
    os.close(fd)
    namespaces.close()  # the agent ends
    assert mounts.at(live / "target", namespaces.mounts(ID)) == found
    namespaces.remove(ID)
    assert not namespaces.pinned(ID)
    assert namespaces.ids() == []


def test_a_namespace_holds_only_what_is_needed(namespaces: Namespaces, live: Path, work: Path) -> None:
    foreign = [mounts.filesystem("tmpfs", {"size": "64k"}, SAFE) for _ in range(20)]
    for number, fd in enumerate(foreign):
        (work / f"foreign{number}").mkdir()
        mounts.attach(fd, work / f"foreign{number}")
        os.close(fd)
    try:
        namespaces.create(ID, [])
        namespaces.create(OTHER_ID, [])
        seen = {mount.target for mount in namespaces.mounts(OTHER_ID)}
        assert not [target for target in seen if target.startswith(str(work))]
        assert {"/", "/proc", "/sys", "/dev"} <= seen
        assert all(not mount.propagation for mount in namespaces.mounts(ID))
    finally:
        for number in range(20):
            mounts.unmount(work / f"foreign{number}")
        namespaces.remove(ID)
        namespaces.remove(OTHER_ID)


def test_what_lies_on_other_file_systems_is_kept() -> None:
    lines = ["1 0 0:1 / / rw - ext4 a rw", "2 1 0:2 / /var rw - ext4 b rw", "3 2 0:3 / /var/lib/gpuaas/x rw - xfs c rw"]
    lines += ["4 1 0:4 / /run rw - tmpfs t rw", "5 4 0:5 / /run/gpuaas/namespaces rw - tmpfs t rw"]
    lines += [
        "6 1 0:6 / /home rw - ext4 d rw",
        "7 1 0:7 / /varnish rw - ext4 e rw",
        "8 1 0:8 / /dev rw - devtmpfs d rw",
    ]
    lines += ["9 8 0:9 / /dev/pts rw - devpts d rw", "10 1 0:1 / /proc/sys/fs/binfmt_misc rw - autofs a rw"]
    needed = small.needed(mounts.parse("\n".join(lines)), ["/run/gpuaas", "/var/lib/gpuaas/x/y"])
    assert sorted(needed) == ["/dev", "/dev/pts", "/run", "/var", "/var/lib/gpuaas/x"]
    assert needed.index("/dev") < needed.index("/dev/pts")


def test_changes_can_be_repeated(namespaces: Namespaces, live: Path, source: Path) -> None:
    target = str(live / "target")
    namespaces.create(ID, [Directory(target), Directory(str(live / "tmp"))])
    for change in (
        [Bind(str(source), target, SAFE | Attribute.READ_ONLY)],
        [FileSystem("tmpfs", str(live / "tmp"), {"size": "64k"}), Propagate(str(live / "tmp"), Propagation.SHARED)],
    ):
        namespaces.change(ID, change)
        before = namespaces.mounts(ID)
        namespaces.change(ID, change)
        assert namespaces.mounts(ID) == before
    assert mounts.at(live / "tmp", before).propagation  # type: ignore[union-attr]
    for other in (Bind(str(live), target), FileSystem("tmpfs", target), Bind(str(source), target, uid_base=BASE)):
        with pytest.raises(HostError, match="mounted there already"):
            namespaces.change(ID, [other])
    for _ in range(2):
        namespaces.change(ID, [Unmount(target), Unmount(str(live / "tmp"))])
        assert mounts.at(target, namespaces.mounts(ID)) is None
    namespaces.remove(ID)


def test_mounts_reach_a_running_process(namespaces: Namespaces, live: Path, source: Path, inside: Inside) -> None:
    views = str(live / "views")
    shared = [Directory(views), FileSystem("tmpfs", views, {"mode": "0755"}), Propagate(views, Propagation.SHARED)]
    namespaces.create(ID, [*shared, Directory(f"{views}/data")])
    # As a container has it: a mount namespace of its own, and a slave of the view.
    script = (
        f"mount --make-rslave {views} && echo ready && read go && cat {views}/data/file; echo; read go; ls {views}/data"
    )
    process = subprocess.Popen(
        namespaces.command(ID, ["unshare", "--mount", "--propagation=unchanged", "sh", "-c", script]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    namespaces.change(ID, [Bind(str(source), f"{views}/data", uid_base=BASE)])
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "text\n"
    namespaces.change(ID, [Unmount(f"{views}/data")])
    assert process.communicate("\n")[0] == ""
    namespaces.remove(ID)


def test_a_failure_comes_back_in_words_and_leaves_no_pin(namespaces: Namespaces, live: Path, source: Path) -> None:
    with pytest.raises(HostError, match="no such file") as refused:
        namespaces.create(ID, [Bind(str(source), str(live / "nowhere"))])
    assert refused.value.action == "mount on"
    assert not namespaces.pinned(ID)
    with pytest.raises(HostError, match="no mount namespace"):
        namespaces.change(ID, [])
    namespaces.remove(ID)
    namespaces.create(ID, [])
    with pytest.raises(HostError, match="already"):
        namespaces.create(ID, [])
    with pytest.raises(HostError, match="not the id"):
        namespaces.create("../../etc", [])
    namespaces.remove(ID)
    namespaces.remove(ID)


def test_quick_changes_are_made_by_the_helper_itself(namespaces: Namespaces, live: Path, source: Path) -> None:
    target = str(live / "target")
    namespaces.create(ID, [Directory(target)])
    for _ in range(2):  # on top of each other
        copy = mounts.clone(source)
        namespaces.change_quickly(ID, [Place(target, SAFE | Attribute.READ_ONLY, BASE)], copy)
        os.close(copy)
    placed = [each for each in namespaces.mounts(ID) if each.target == target]
    assert [each.attributes for each in placed] == [SAFE | Attribute.READ_ONLY] * 2
    assert mounts.at(target) is None
    with pytest.raises(HostError, match="no such file"):
        namespaces.change_quickly(ID, [Directory(str(live / "other")), Propagate(f"{target}/no", Propagation.SHARED)])
    with pytest.raises(HostError, match="nothing came"):
        namespaces.change_quickly(ID, [Place(target)])
    # It went home each time: who comes next has nothing of what it saw.
    namespaces.create(OTHER_ID, [])
    assert mounts.at(target, namespaces.mounts(OTHER_ID)) is None
    namespaces.change_quickly(ID, [Unmount(target, all_=True), Remove(target)])
    assert mounts.at(target, namespaces.mounts(ID)) is None
    assert not (live / "target").exists()
    many = [Directory(str(live / "d" / ("x" * 200)))] * 200
    with pytest.raises(HostError, match="No such file"):  # too long to be quick, and done all the same
        namespaces.change_quickly(ID, many)
    for id in (ID, OTHER_ID):
        namespaces.remove(id)


def test_a_pin_that_was_never_made_counts_as_none(namespaces: Namespaces, paths: Paths, live: Path) -> None:
    namespaces.create(OTHER_ID, [])
    paths.pin(ID).touch()
    assert namespaces.ids() == sorted([ID, OTHER_ID])
    assert not namespaces.pinned(ID)
    namespaces.create(ID, [])
    assert namespaces.pinned(ID)
    for id in (ID, OTHER_ID):
        namespaces.remove(id)


def test_a_killed_helper_is_replaced(namespaces: Namespaces, live: Path, source: Path) -> None:
    namespaces.create(ID, [Directory(str(live / "target")), Bind(str(source), str(live / "target"))])
    pids = _helpers(live)
    for pid in pids:
        with suppress(ProcessLookupError):  # the child of a request, which has just been served
            os.kill(pid, 9)
    _wait_until_ended(pids)
    assert mounts.at(live / "target", namespaces.mounts(ID))
    namespaces.remove(ID)


# An agent in another mount namespace than the machine's first one, made on one CPU, while its helper runs on another.
ELSEWHERE = """
import os, sys
from pathlib import Path
from gpuaas.node.host import kernel
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.paths import Paths
os.sched_setaffinity(0, {int(sys.argv[1])})
kernel.unshare(kernel.CLONE_NEWNS)
os.sched_setaffinity(0, {int(sys.argv[2])})
namespaces = Namespaces(Paths(Path(sys.argv[3]), Path(sys.argv[3])))
namespaces.create("al-" + "a" * 16, [])
namespaces.remove("al-" + "a" * 16)
namespaces.clear()
"""


@pytest.mark.parametrize("cpus", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("propagation", ["private", "shared"])
def test_an_agent_may_live_in_any_mount_namespace(work: Path, cpus: tuple[int, int], propagation: str) -> None:
    if not set(cpus) <= os.sched_getaffinity(0):
        pytest.skip("needs two CPUs")
    command = [sys.executable, "-c", ELSEWHERE, *map(str, cpus), str(work)]
    subprocess.run(["unshare", "--mount", f"--propagation={propagation}", "--", *command], check=True)


def test_many_threads_ask_at_once(namespaces: Namespaces, paths: Paths, source: Path) -> None:
    ids = [f"al-{letter * 16}" for letter in "abcdefghijklmnop"]
    wrong: list[object] = []

    def work_on(id: str) -> None:
        try:
            target = str(paths.make_live(id) / "target")
            namespaces.create(id, [Directory(target), Bind(str(source), target, uid_base=BASE)])
            namespaces.change_quickly(id, [Unmount(target)])
            assert mounts.at(target, namespaces.mounts(id)) is None
            namespaces.remove(id)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work_on, args=(id,)) for id in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert namespaces.ids() == []


@needs("mkfs.ext4")
def test_every_kind_of_mount_goes_with_the_pin(namespaces: Namespaces, paths: Paths, live: Path, source: Path) -> None:
    layer = paths.layer(ID)
    layer.mkdir(parents=True)
    LIMITS["image"].prepare(layer, 64)
    namespaces.create(
        ID,
        [
            *(Directory(str(live / name)) for name in ("lower", "disk", "rootfs")),
            Bind(str(source), str(live / "lower"), uid_base=BASE),
            Image(str(layer / "disk.ext4"), str(live / "disk")),
            Overlay(str(live), "lower", "disk/upper", "disk/work", str(live / "rootfs")),
        ],
    )
    assert loops.in_use(layer / "disk.ext4")
    namespaces.change(ID, [Image(str(layer / "disk.ext4"), str(live / "disk"))])
    namespaces.remove(ID)
    assert not loops.in_use(layer / "disk.ext4")


def _wait_until_ended(pids: list[int]) -> None:
    """A killed process has no command line any more while its sockets are still open."""
    for pid in pids:
        with suppress(FileNotFoundError):
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)


def _helpers(live: Path) -> list[int]:
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"gpuaas.node.host.mounts.enter" in words and os.fsencode(live.parent.parent) in words:
            found.append(int(command.parent.name))
    return found
