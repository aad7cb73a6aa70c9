"""Writes into a tree that is being made and in which nobody runs yet: the files of a base image.

A name may lead through links of the tree, as `lib/x` does where `lib` is a link to `usr/lib`; they are resolved as if
the tree were the root, so none leads out. The last part of a name is never followed. Running trees: see `safepath`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel

_INSIDE = kernel.RESOLVE_IN_ROOT | kernel.RESOLVE_NO_MAGICLINKS
_PARENT_MODE = 0o755
_CHUNK = 1024 * 1024
_CAPABILITY = "security.capability"


@dataclass(frozen=True)
class Owner:
    uid: int = 0
    gid: int = 0
    mode: int = 0o644
    mtime: float | None = None
    capability: bytes = b""  # the one extended attribute an image may bring


class Tree:
    """`root_fd` stays the caller's."""

    def __init__(self, root_fd: int) -> None:
        self._root = root_fd

    def directory(self, name: str, owner: Owner | None = None) -> None:
        """Makes it, parents included; what is there and no directory is replaced. Without owner, left as it is."""
        if not name:
            return
        parent, last = _split(name)
        if not self.is_directory(parent):
            self.directory(parent)
        with self._parent(name) as (fd, _):
            if not _is_directory(fd, last):
                _unlink(fd, last)
                os.mkdir(last, dir_fd=fd)
                os.chmod(last, _PARENT_MODE, dir_fd=fd)
            if owner is not None:
                os.chown(last, owner.uid, owner.gid, dir_fd=fd, follow_symlinks=False)
                os.chmod(last, owner.mode, dir_fd=fd)  # after chown, which takes setgid away

    def file(self, name: str, data: IO[bytes] | bytes, owner: Owner) -> None:
        with self._place(name) as (parent, last):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(last, flags, 0o600, dir_fd=parent)
            with os.fdopen(fd, "wb", buffering=0) as file:
                if isinstance(data, bytes):
                    file.write(data)
                else:
                    while chunk := data.read(_CHUNK):
                        file.write(chunk)
                os.fchown(fd, owner.uid, owner.gid)
                os.fchmod(fd, owner.mode)
                if owner.capability:
                    os.setxattr(fd, _CAPABILITY, owner.capability)
                if owner.mtime is not None:
                    os.utime(fd, (owner.mtime, owner.mtime))

    def symlink(self, name: str, target: str, owner: Owner) -> None:
        with self._place(name) as (parent, last):
            os.symlink(target, last, dir_fd=parent)
            os.chown(last, owner.uid, owner.gid, dir_fd=parent, follow_symlinks=False)

    def hardlink(self, name: str, target: str) -> None:
        with self._parent(target) as (source, original):
            found = os.stat(original, dir_fd=source, follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                raise HostError("link to", target, "it is no file", transient=False)
            with self._place(name) as (parent, last):
                os.link(original, last, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)

    def read(self, name: str, limit: int = 1024 * 1024) -> bytes:
        """Of a regular file; empty when there is none."""
        try:
            fd = kernel.openat2(self._root, name, os.O_RDONLY | os.O_NONBLOCK, _INSIDE)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
                return b""
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return b""
        with os.fdopen(fd, "rb") as file:
            return file.read(limit)

    def exists(self, name: str) -> bool:
        """As a program inside would find it."""
        return self._opens(name, os.O_PATH)

    def is_directory(self, name: str) -> bool:
        return self._opens(name, os.O_PATH | os.O_DIRECTORY)

    def names(self, name: str) -> list[str]:
        if not self.is_directory(name):
            return []
        fd = kernel.openat2(self._root, name or ".", os.O_RDONLY | os.O_DIRECTORY, _INSIDE)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def remove(self, name: str) -> None:
        """With everything below it."""
        if not self.is_directory(_split(name)[0]):
            return
        with self._parent(name) as (parent, last):
            directory = _is_directory(parent, last)
        if directory:
            for below in self.names(name):
                self.remove(f"{name}/{below}")
        with self._parent(name) as (parent, last):
            if directory:
                os.rmdir(last, dir_fd=parent)
            else:
                _unlink(parent, last)

    def _opens(self, name: str, flags: int) -> bool:
        try:
            os.close(kernel.openat2(self._root, name or ".", flags, _INSIDE))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise
        return True

    @contextmanager
    def _place(self, name: str) -> Iterator[tuple[int, str]]:
        """Where something new goes: its directory is there, and what had the name is not."""
        parent, _ = _split(name)
        if not self.is_directory(parent):
            self.directory(parent)
        with self._parent(name) as (fd, last):
            if _is_directory(fd, last):
                self.remove(name)
            _unlink(fd, last)
            yield fd, last

    @contextmanager
    def _parent(self, name: str) -> Iterator[tuple[int, str]]:
        parent, last = _split(name)
        fd = kernel.openat2(self._root, parent or ".", os.O_RDONLY | os.O_DIRECTORY, _INSIDE)
        try:
            yield fd, last
        finally:
            os.close(fd)


def _split(name: str) -> tuple[str, str]:
    parent, _, last = name.rpartition("/")
    return parent, last


def _is_directory(fd: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    return False


def _unlink(fd: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=fd)
