"""The one mount of each image on this node: views have copies of it, so what one has read, all have in memory.

<run>/images/<sha256>    on a private file system of their own, so that no other namespace gets them
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import erofs, mounts
from gpuaas.node.host.mounts.mounts import Attribute, Mount, Propagation
from gpuaas.node.host.runtimes.store import Store


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
            self._mount(digest, self._place / digest)

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
        image = self._store.path(digest)
        if self._loop:
            return erofs.by_loop(image)
        backing = self._store.open(digest)
        try:
            return erofs.mounted(image, backing)
        finally:
            os.close(backing)
