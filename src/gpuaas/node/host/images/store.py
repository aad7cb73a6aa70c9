"""The store of base images: each is a directory that is complete or absent, and never written after.

    <images>/<version>/rootfs         the tree, only ever mounted read-only and with shifted ids
    <images>/<version>/image.json     where it came from

The version of our own image is the digest of its recipe, that of an imported one the digest of its archive. Building
takes a minute and is done before a node takes work; no launch waits for it.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel, safepath
from gpuaas.node.host.images import archives, debian
from gpuaas.node.host.images.finish import finish
from gpuaas.node.host.images.tree import Tree
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.paths import Paths

_VERSION = re.compile(r"[a-z0-9][a-z0-9-]{0,60}-[0-9a-f]{16}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_BUILDING = ".building-"
BASE = "base"  # what a spec calls the image of this node


class About(Struct, frozen=True):
    version: str
    source: str


class Images:
    """`base` names an imported version to use as this node's base image instead of our own."""

    def __init__(self, paths: Paths, base: str | None = None) -> None:
        self._images = paths.images
        self._base = base

    def current(self) -> str:
        """The version that new allocations get; `ensure` makes it exist."""
        return self._base or debian.version()

    def exists(self, version: str) -> bool:
        return _VERSION.fullmatch(version) is not None and (self._images / version / "image.json").is_file()

    def versions(self) -> list[str]:
        return sorted(path.name for path in self._images.glob("*") if self.exists(path.name))

    def resolve(self, label: str) -> str:
        """The version that a spec means, which must be here already."""
        version = self.current() if label == BASE else label
        if not self.exists(version):
            raise HostError("find", f"image {label}", f"this node does not have it ({version})")
        return version

    def tree(self, version: str) -> Path:
        if not self.exists(version):
            raise HostError("find", f"image {version}", "this node does not have it")
        return self._images / version / "rootfs"

    def ensure(self, version: str | None = None) -> str:
        """Builds what is missing, and waits for whoever is building it already."""
        version = version or self.current()
        if self.exists(version):
            return version
        if version != debian.version():
            raise HostError("build", version, "no recipe of ours makes it: import it", transient=False)
        with self._alone() as lock:
            self._add(version, "mmdebstrap", lambda tree: debian.build(tree, lock))
        return version

    def import_archive(self, archive: Path, name: str) -> str:
        """Takes in a tarball of a root file system, an OCI archive or a `docker save`. Answers its version."""
        if _NAME.fullmatch(name) is None:
            raise HostError("import", repr(name), "not a name for an image: a-z, 0-9 and - only", transient=False)
        version = f"{name}-{_digest(archive)}"
        with self._alone():
            self._add(version, archive.name, lambda tree: _unpack(archive, tree))
        return version

    def _add(self, version: str, source: str, fill: Callable[[Path], None]) -> None:
        """Made aside, on the disk, then under its name: there is no half of an image."""
        if self.exists(version):
            return
        aside = self._images / f"{_BUILDING}{version}"
        with asking("make", f"image {version}"):
            (aside / "rootfs").mkdir(parents=True)
        fill(aside / "rootfs")
        with safepath.root(aside / "rootfs") as fd, asking("finish", f"image {version}"):
            finish(Tree(fd))
        with asking("store", f"image {version}"):
            (aside / "rootfs").chmod(0o755)
            (aside / "image.json").write_bytes(msgspec.json.encode(About(version, source)))
            self._settle(aside, version)

    def _settle(self, aside: Path, version: str) -> None:
        fd = os.open(self._images, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            kernel.syncfs(fd)  # one call instead of an fsync for each of 15,000 files
            os.rename(aside, self._images / version)
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """One builder at a time on this machine, which first clears away what a killed one has left."""
        with asking("lock", self._images):
            # Only root may pass: inside are setuid programs, and files as tenants' images had them.
            self._images.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._images.chmod(0o700)
            lock = os.open(self._images / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with asking("lock", self._images):
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._clear()
            try:
                yield lock
            finally:
                self._clear()
        finally:
            os.close(lock)

    def _clear(self) -> None:
        for name in os.listdir(self._images):
            if name.startswith((_BUILDING, f".removing-{_BUILDING}")):
                safepath.remove_tree(self._images, name.removeprefix(".removing-"))


def _unpack(archive: Path, target: Path) -> None:
    with safepath.root(target) as fd:
        archives.unpack(archive, Tree(fd), target.parent)


def _digest(archive: Path) -> str:
    with asking("read", archive), archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(str(debian.RECIPE_FORMAT).encode())
    return digest.hexdigest()[:16]
