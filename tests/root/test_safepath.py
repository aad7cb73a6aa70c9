import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host import safepath
from gpuaas.node.host.mounts import mounts

TRIES = 100_000
# Swaps a directory and a link to another place as fast as it can, as a tenant would.
ATTACKER = """
import os, sys
from gpuaas.node.host import kernel
fd = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
while True:
    kernel.renameat2(fd, "data", fd, "trap", kernel.RENAME_EXCHANGE)
"""


@pytest.fixture
def tree(work: Path) -> Path:
    tree = work / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/hosts").write_bytes(b"inside")
    (work / "secret").mkdir()
    (work / "secret/hosts").write_bytes(b"outside")
    return tree


def test_opens_and_reads_what_is_there(tree: Path) -> None:
    with safepath.root(tree) as root:
        os.close(safepath.open_dir(root, "etc"))
        assert safepath.is_real_directory(root, "etc")
        assert safepath.is_real_directory(root, "/etc")
        assert not safepath.is_real_directory(root, "etc/hosts")
        assert not safepath.is_real_directory(root, "nowhere")
        assert safepath.read_file(root, "etc/hosts", 100) == b"inside"
        assert safepath.read_file(root, "etc/hosts", 3) == b"ins"
        assert safepath.read_file(root, "etc/none", 3) is None


@pytest.mark.parametrize("target", ["../secret", "/secret", "/proc/self/root", "etc"])
def test_no_link_is_followed(tree: Path, target: str) -> None:
    (tree / "link").symlink_to(target)
    (tree / "etc/link").symlink_to("hosts")
    with safepath.root(tree) as root:
        assert not safepath.is_real_directory(root, "link")
        for path in ("link", "link/hosts"):
            with pytest.raises(HostError, match=r"link|directory") as refused:
                safepath.open_dir(root, path)
            assert not refused.value.transient
        for path in ("link/hosts", "etc/link", "link"):
            with pytest.raises(HostError):
                safepath.read_file(root, path, 10)


def test_dots_do_not_lead_out(tree: Path) -> None:
    with safepath.root(tree / "etc") as root:
        assert safepath.read_file(root, "../../secret/hosts", 10) is None
        assert safepath.read_file(root, "../hosts", 10) == b"inside"


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_impossible_names_are_host_errors(tree: Path, path: str) -> None:
    with safepath.root(tree) as root, pytest.raises(HostError):
        safepath.read_file(root, path, 10)


@pytest.mark.timeout(20)
def test_nothing_hangs_on_what_is_no_file(tree: Path) -> None:
    os.mkfifo(tree / "etc/fifo")
    os.mknod(tree / "etc/device", 0o600 | 0o020000, os.makedev(5, 0))
    with safepath.root(tree) as root:
        for name in ("etc/fifo", "etc/device", "etc"):
            with pytest.raises(HostError, match="not a regular file"):
                safepath.read_file(root, name, 10)


@pytest.mark.parametrize("name", safepath.MOUNT_POINTS)
@pytest.mark.parametrize("kind", ["link out", "link in", "file", "fifo", "missing"])
def test_a_tree_without_real_mount_points_is_refused(tree: Path, name: str, kind: str) -> None:
    for each in safepath.MOUNT_POINTS:
        (tree / each).mkdir(exist_ok=True)
    with safepath.root(tree) as root:
        safepath.real_directories(root)
        (tree / name).rename(tree / "aside")
        match kind:
            case "link out":
                (tree / name).symlink_to("../secret")
            case "link in":
                (tree / name).symlink_to("aside")
            case "file":
                (tree / name).touch()
            case "fifo":
                os.mkfifo(tree / name)
        with pytest.raises(HostError, match=f"/{name}") as refused:
            safepath.real_directories(root)
        assert not refused.value.transient


@contextmanager
def attacker(tree: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", ATTACKER, str(tree)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_a_race_is_never_lost(tree: Path, work: Path) -> None:
    (tree / "data").mkdir()
    (tree / "data/hosts").write_bytes(b"inside")
    (tree / "trap").symlink_to(work / "secret")
    refused = escaped = 0
    with attacker(tree), safepath.root(tree) as root:
        for _ in range(TRIES):
            try:
                escaped += safepath.read_file(root, "data/hosts", 10) != b"inside"
            except HostError:
                refused += 1
    assert escaped == 0
    assert 0 < refused < TRIES, "there was no race"


def test_removes_whatever_a_tenant_has_built(tree: Path, work: Path) -> None:
    (tree / "link").symlink_to("../secret")
    os.mkfifo(tree / "fifo")
    os.mknod(tree / "device", 0o600 | 0o020000, os.makedev(1, 3))
    (tree / "shut").mkdir(mode=0)
    (tree / "shut/file").touch()
    (tree / "etc" / ("n" * 255)).mkdir()
    for name in range(300):
        (tree / "etc" / f"d{name}").mkdir()
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(3000):  # deeper than any path, Python's stack and the open files of a process
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    safepath.remove_tree(work, "tree")
    safepath.remove_tree(work, "tree")
    assert sorted(os.listdir(work)) == ["secret"]
    assert (work / "secret/hosts").read_bytes() == b"outside"


def test_a_removal_goes_on_where_one_was_killed(tree: Path, work: Path) -> None:
    (work / ".removing-tree/d0/below").mkdir(parents=True)
    (work / ".removing-tree/d1").symlink_to("../secret")
    safepath.remove_tree(work, "tree")
    (work / ".removing-tree/d0/below").mkdir(parents=True)
    safepath.remove_tree(work, "tree")
    assert sorted(os.listdir(work)) == ["secret"]
    assert (work / "secret/hosts").exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_tree_is_removed_too(work: Path, tree: Path, kind: str) -> None:
    (work / "odd").symlink_to("secret") if kind == "link" else (work / "odd").touch()
    safepath.remove_tree(work, "odd")
    assert sorted(os.listdir(work)) == ["secret", "tree"]
    assert (work / "secret/hosts").exists()


def test_nothing_that_is_mounted_is_removed(tree: Path, work: Path) -> None:
    subprocess.run(["mount", "--bind", work / "secret", tree / "etc"], check=True)
    try:
        with pytest.raises(HostError, match="busy"):
            safepath.remove_tree(work, "tree")
        assert (work / "secret/hosts").exists()
    finally:
        mounted = next(each.target for each in mounts.mounts() if each.target.startswith(f"{work}/"))
        mounts.unmount(Path(mounted))
