"""Namespaces kept by a file: an nsfs bind on a private tmpfs. Dropping the last pin of a namespace drops all that is
in it, unless a process is. Nothing here is remembered: after a reboot, or without the tmpfs, there are no pins.
"""

import errno
import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute, Propagation

_NS_GET_NSTYPE = 0xB703
_preparing = threading.Lock()


def prepare(directory: Path) -> None:
    """Pins need a private mount to live on: on a shared one, each would be sent to the namespace it pins."""
    with _preparing:
        if not os.path.ismount(directory):
            with asking("make the directory", directory):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = Attribute.NOSUID | Attribute.NODEV | Attribute.NOEXEC
            fd = mounts.filesystem("tmpfs", {"source": "gpuaas", "mode": "0700", "size": "4m"}, flags)
            try:
                mounts.attach(fd, directory)
            finally:
                os.close(fd)
        mounts.set_propagation(directory, Propagation.PRIVATE)


def hold(pin: Path, handle: int) -> None:
    """Pins the namespace behind `handle`. A crash in the middle leaves a plain file, which is not a pin."""
    with asking("pin", pin):
        pin.touch(0o600)
        kernel.mount(f"/proc/self/fd/{handle}", str(pin), kernel.MS_BIND)


def reopen(pin: Path, kind: int) -> int | None:
    """A handle on the pinned namespace, if it is one of this kind. The caller closes it."""
    with asking("open the pin", pin):
        try:
            fd = os.open(pin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if fcntl.ioctl(fd, _NS_GET_NSTYPE) == kind:
                return fd
        except OSError as error:
            if error.errno != errno.ENOTTY:
                os.close(fd)
                raise
        os.close(fd)
        return None


def pinned(pin: Path, kind: int) -> bool:
    fd = reopen(pin, kind)
    if fd is None:
        return False
    os.close(fd)
    return True


def drop(pin: Path) -> None:
    while mounts.unmount(pin, lazy=True):
        pass
    with asking("remove", pin), suppress(FileNotFoundError):
        pin.unlink()


def names(directory: Path) -> list[str]:
    """Every pin, and the beginning of one."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def clear(directory: Path) -> None:
    """Removes what pins are kept in, unless some are left."""
    if not names(directory):
        mounts.unmount(directory)
        with suppress(FileNotFoundError):
            directory.rmdir()
