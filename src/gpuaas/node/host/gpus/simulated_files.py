"""The device nodes and the memory files of simulated GPUs: made anew where they differ, else left alone."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuaas.kit.errors import HostError


def make_nodes(directory: Path, wanted: Mapping[str, tuple[int, int]]) -> None:
    """`wanted` is name: major and minor. Others go."""
    if os.statvfs(directory).f_flag & os.ST_NODEV:
        cause = "its file system is mounted nodev; choose a state directory where devices work"
        raise HostError("simulate", str(directory), cause, transient=False)
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
