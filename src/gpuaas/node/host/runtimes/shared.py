"""The one mount of each image on this node: views have copies of it, so what one has read, all have in memory.

    <run>/images/<sha256>    on a private file system of their own, so that no other namespace gets them

A file is mounted as it is where the kernel can (6.12), through a loop device where it cannot.
"""

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import loops, mounts
from gpuaas.node.host.mounts.mounts import Attribute, Mount, Propagation
from gpuaas.node.host.runtimes.store import Store

READ_ONLY = Attribute.READ_ONLY | Attribute.NOSUID | Attribute.NODEV


class Shared:
    """Safe to use from many threads."""

    def __init__(self, place: Path, store: Store, *, loop: bool = False) -> None:
        self._place = place
        self._store = store
        self._loop = loop  # never without
        self._lock = threading.Lock()

    def ensure(self, digest: str) -> None:
        with self._lock:
            self._ensure(digest)

    def copy(self, digest: str) -> int:
        """A detached mount of it, to be placed somewhere. The caller closes it."""
        with self._lock:  # or another thread drops it in between, and this is a copy of an empty directory
            self._ensure(digest)
            return mounts.clone(self._place / digest)

    def device(self, digest: str) -> str | None:
        """Of its mount, if it is mounted. Not from the list of mounts: a node has thousands, and somebody waits."""
        try:
            found, place = os.stat(self._place / digest).st_dev, os.stat(self._place).st_dev
        except FileNotFoundError:
            return None
        return None if found == place else f"{os.major(found)}:{os.minor(found)}"

    def mounted(self) -> dict[str, Mount]:
        """By digest."""
        prefix = f"{self._place}/"
        return {each.target.removeprefix(prefix): each for each in mounts.mounts() if each.target.startswith(prefix)}

    def drop(self, digest: str) -> None:
        """Copies stay what they are."""
        with self._lock:
            target = self._place / digest
            while mounts.unmount(target, lazy=True):
                pass
            with asking("remove", target), suppress(FileNotFoundError):
                target.rmdir()

    def clear(self) -> None:
        for digest in self.mounted():
            self.drop(digest)
        while mounts.unmount(self._place, lazy=True):
            pass
        with suppress(FileNotFoundError):
            self._place.rmdir()

    def _ensure(self, digest: str) -> None:
        if self.device(digest) is None:
            self._prepare()
            try:
                self._mount(digest, self._place / digest)
            finally:
                loops.make_direct()

    def _mount(self, digest: str, target: Path) -> None:
        fd = self._mounted(digest)
        try:
            with asking("make the directory", target):
                target.mkdir(mode=0o700, exist_ok=True)
            mounts.attach(fd, target)
        finally:
            os.close(fd)

    def _prepare(self) -> None:
        if not os.path.ismount(self._place):
            with asking("make the directory", self._place):
                self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = Attribute.NOSUID | Attribute.NODEV | Attribute.NOEXEC
            fd = mounts.filesystem("tmpfs", {"source": "images", "mode": "0700", "size": "4m"}, flags)
            try:
                mounts.attach(fd, self._place)
            finally:
                os.close(fd)
        mounts.set_propagation(self._place, Propagation.PRIVATE)

    def _mounted(self, digest: str) -> int:
        backing = self._store.open(digest)
        try:
            if not self._loop:
                try:
                    # By handle: a machine reads the name of the source, which says nothing about this host.
                    return mounts.filesystem("erofs", {"source": f"/proc/self/fd/{backing}"}, READ_ONLY)
                except HostError as error:
                    if not _needs_device(error):
                        raise
        finally:
            os.close(backing)
        with loops.attached(self._store.path(digest), read_only=True) as device:
            return mounts.filesystem("erofs", {"source": str(device), "ro": None}, READ_ONLY)


def _needs_device(error: HostError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.ENOTBLK
