"""The device nodes and the memory files of simulated GPUs: made anew where they differ, else left alone."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute

_HIDDEN = {"source": "gpus", "mode": "0700"}


def hide(directory: Path) -> None:
    """Puts a file system of its own there, unless there is one: a machine reads in its list of mounts where in its
    file system a bound file is, and on the host's disk that would be the path of the state directory (T15).

    In memory, and what a tenant writes to a file there counts as that tenant's memory.
    """
    if mounts.at(directory) is not None:
        return
    fd = mounts.filesystem("tmpfs", _HIDDEN, Attribute.NOSUID | Attribute.NOEXEC)  # not nodev: nodes are opened there
    try:
        mounts.attach(fd, directory)
    finally:
        os.close(fd)


def unhide(directory: Path) -> None:
    while mounts.unmount(directory, lazy=True):
        pass


def make_nodes(directory: Path, wanted: Mapping[str, tuple[int, int]]) -> None:
    """`wanted` is name: major and minor. Others go."""
    for name, (major, minor) in wanted.items():
        _make_node(directory / name, os.makedev(major, minor))
    _drop_others(directory, wanted)


def make_memory(directory: Path, wanted: set[str], size_bytes: int) -> None:
    """The bytes of a GPU survive: only a scrub clears them."""
    for name in wanted:
        fd = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            os.fchmod(fd, 0o666)  # its tenant's ids are nobody's here; the directory keeps everyone else out
            if os.fstat(fd).st_size != size_bytes:
                os.ftruncate(fd, size_bytes)
        finally:
            os.close(fd)
    _drop_others(directory, wanted)


def _make_node(path: Path, device: int) -> None:
    """Everyone may open it, as with a real GPU's: the device cgroup says who does, the directory who sees it."""
    mode = stat.S_IFCHR | 0o666
    if path.exists() and (path.lstat().st_mode, path.lstat().st_rdev) == (mode, device):
        return
    temporary = path.with_name(".new-" + path.name)
    temporary.unlink(missing_ok=True)
    os.mknod(temporary, mode, device)
    temporary.chmod(0o666)  # mknod obeys the umask
    temporary.rename(path)


def _drop_others(directory: Path, wanted: Mapping[str, object] | set[str]) -> None:
    for path in directory.iterdir():
        if path.name not in wanted:
            path.unlink()
