"""Tests that make real mounts, namespaces and images, as root. After each of them the machine must be as it was.

One runs at a time on a machine, whatever else pytest does in parallel: otherwise none could say what it left behind.
"""

import ctypes
import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.gpus import simulated
from gpuaas.node.host.images.store import Images
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.namespaces import Namespaces
from gpuaas.node.host.paths import Paths
from node.samples import ID, body
from root.linux import Node
from root.machines import UID_BASE, Machine

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("GPUAAS_TEST_CACHE", "/var/cache/gpuaas-test"))
PREFIX = "gpuaas"
SETTLE_SECONDS = 3.0
_PR_SET_CHILD_SUBREAPER = 36


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.root)
            if item.config.getoption("timeout") is None:  # what somebody asks for counts
                item.add_marker(pytest.mark.timeout(900))  # a first run builds the base image, and waits for others
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips a test on a machine without these programs."""
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


# what is left


def look() -> dict[str, set[str]]:
    return {
        "mounts": {f"{each.target} ({each.filesystem} {each.source})" for each in mounts.mounts()},
        "loop devices": {_text(file) for file in Path("/sys/block").glob("loop*/loop/backing_file")},
        "cgroups": set(_cgroups()),
        "network namespaces": set(_names("/run/netns")),
        "network links": set(_names("/sys/class/net")),
        "nft tables": {line for line in _lines("nft", "list", "tables") if PREFIX in line},
        "forwarding": {_text(Path("/proc/sys/net/ipv4/ip_forward"))},
    }


def processes() -> dict[int, int]:
    """Every process that has not ended, and its parent."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        state, parent, *_ = _text(stat).rpartition(")")[2].split() or ("Z", "0")
        if state != "Z":
            found[int(stat.parent.name)] = int(parent)
    return found


def started(before: dict[int, int]) -> set[str]:
    """Ours that were not there: orphans come to us, because we are their subreaper, and not to process 1.

    What older processes start in between, such as the database of other tests, is not ours.
    """
    now = processes()
    ours = {os.getpid()}
    new = set(now) - set(before)
    while more := {pid for pid in new - ours if now[pid] in ours}:
        ours |= more
    return {f"{pid} {_text(Path(f'/proc/{pid}/cmdline'))}" for pid in ours - {os.getpid()}}


def left(before: dict[str, set[str]], running: dict[int, int], seconds: float = SETTLE_SECONDS) -> dict[str, set[str]]:
    """What is there now and was not, waiting a little for what the kernel does late."""
    deadline = time.monotonic() + seconds
    while True:
        more = {kind: now - before[kind] for kind, now in look().items()} | {"processes": started(running)}
        more = {kind: things for kind, things in more.items() if things}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.02)


@pytest.fixture(scope="session", autouse=True)
def _subreaper() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else's test makes or checks anything meanwhile."""
    with open(Path(tempfile.gettempdir()) / "gpuaas-root-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def clean_machine(_subreaper: None) -> Iterator[None]:
    with alone():
        before, running = look(), processes()
        yield
        if more := left(before, running):
            listed = "\n".join(f"  {kind}: {thing}" for kind, things in more.items() for thing in sorted(things))
            pytest.fail(f"left on the machine:\n{listed}", pytrace=False)


def _cgroups() -> Iterator[str]:
    for mount in mounts.mounts():
        if mount.filesystem in ("cgroup", "cgroup2"):
            yield from (str(path) for path in Path(mount.target).glob(f"{PREFIX}*/**"))


def _names(directory: str) -> list[str]:
    try:
        return [f"{directory}/{name}" for name in os.listdir(directory)]
    except FileNotFoundError:
        return []


def _lines(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


# what tests work with


@pytest.fixture
def work() -> Iterator[Path]:
    """A directory of the test's own that the ids of a tenant can pass through, unlike `tmp_path`."""
    path = Path(tempfile.mkdtemp(prefix="gpuaas-root-"))
    path.chmod(0o711)
    yield path
    erase(path)
    close_directories(path)


def close_directories(path: Path) -> None:
    """An agent's handles end with its process, and here that is ours: those of hundreds of hosts would keep disks busy,
    and come to more than 1,024, which is the most that libnftables can take."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            file = Path("/proc/self/fd", name)
            if file.readlink().is_relative_to(path) and file.is_dir():
                os.close(int(name))


def erase(path: Path) -> None:
    mounted = [each.target for each in mounts.mounts() if each.target.startswith(f"{path}/")]
    for target in reversed(mounted):
        mounts.unmount(Path(target), lazy=True)
    shutil.rmtree(path)
    assert not mounted, f"still mounted: {mounted}"


@pytest.fixture
def paths(work: Path) -> Paths:
    return Paths(work / "state", work / "run")


@pytest.fixture
def namespaces(paths: Paths) -> Iterator[Namespaces]:
    made = Namespaces(paths, keep=simulated.given(paths.state / "simulated"))
    yield made
    forgotten = made.ids()
    for id in forgotten:
        made.remove(id)
    made.clear()
    assert not forgotten, f"still pinned: {forgotten}"


@pytest.fixture(scope="session")
def base_image() -> Images:
    """The store with our own base image, built once per machine and kept for later runs."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("not installed: mmdebstrap")
    images = Images(Paths(CACHE, CACHE, CACHE / "images"))
    images.ensure()
    return images


@pytest.fixture
def node(work: Path, base_image: Images) -> Iterator[Node]:
    made = Node(work, CACHE / "images")
    yield made
    made.host.shut_down()


Entry = tuple[str, dict[str, object], bytes]


def entry(name: str, data: bytes = b"", **more: object) -> Entry:
    """A member of an archive; `more` are fields of TarInfo."""
    return name, more, data


def tarball(file: Path, entries: list[Entry], mode: str = "w") -> Path:
    with tarfile.open(file, mode) as archive:
        for name, more, data in entries:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o644
            for field, value in more.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(data))
    return file


def directory(name: str, mode: int = 0o755, **more: object) -> Entry:
    return entry(name, type=tarfile.DIRTYPE, mode=mode, **more)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return entry(name, type=kind, linkname=target)


SMALLEST: list[Entry] = [
    directory("etc"),
    directory("usr/bin"),
    link("bin", "usr/bin"),
    entry("usr/bin/sh", b"#!", mode=0o755),
    entry("usr/bin/sudo", b"#!", mode=0o4755),
    entry("usr/sbin/sshd", b"#!", mode=0o755),
    entry("etc/passwd", b"root:x:0:0::/root:/bin/sh\n"),
    entry("etc/group", b"root:x:0:\nshadow:x:42:\n"),
]


@pytest.fixture
def small_images(paths: Paths, work: Path) -> Images:
    """A store whose base image has a handful of files, made in milliseconds."""
    version = Images(paths).import_archive(tarball(work / "small.tar", SMALLEST), "small")
    return Images(paths, base=version)


@pytest.fixture
def inside(namespaces: Namespaces) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in an allocation's mount namespace, as this user of the host."""

    def run(id: str, *command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"] if user else []
        return subprocess.run(namespaces.command(id, [*switch, *command]), capture_output=True, text=True)

    return run


@pytest.fixture
def machine(paths: Paths, base_image: Images, namespaces: Namespaces) -> Iterator[Machine]:
    """Ready to be started. Gone afterwards, whatever became of it."""
    made = Machine(ID, body(FakeHost(), uid_base=UID_BASE), paths, base_image, namespaces)
    yield made
    made.remove()
