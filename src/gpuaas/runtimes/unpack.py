"""Takes archives apart into a tree that only we write: nothing outside of it, nothing special in it, bounded in size.

Refused are absolute names, `..`, links that leave the tree, writing through links, devices, and bombs. Setuid bits are
taken away. A package of a system (Debian) has names and links that start at `/`: its layout says where they go.
"""

import errno
import fnmatch
import lzma
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpuaas.runtimes.tree import LIMITS, Limits, refused

_CHUNK = 1 << 20
# Whatever the readers of archives say to what is none; an encrypted zip is a RuntimeError.
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, ValueError, OverflowError, RuntimeError),
)
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # no fault of an archive
_MERGED = ("bin", "sbin", "lib", "lib64")
Layout = Callable[[str], str]  # a path of a system, without its leading slash -> a path in the tree


class Unpacking:
    """One tree that grows by archives; what an earlier one made is never written through."""

    def __init__(self, root: Path, limits: Limits = LIMITS, leave_out: Iterable[str] = ()) -> None:
        self._root, self._limits = root, limits
        self._leave_out = tuple(leave_out)
        self._entries = self._bytes = 0
        self._directories = {""}  # known to be real ones; only `_free` could change that, and never replaces one
        root.mkdir(parents=True, exist_ok=True)

    def tar(self, stream: IO[bytes], into: str = ".", strip: int = 0, layout: Layout | None = None) -> None:
        with _refusing_damage(), tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                if layout is not None:
                    _lay_out(member, layout)
                path = self._place(member.name, into, strip)
                if path is None:
                    continue
                self._count(path, member.size if member.isreg() else 0)
                self._tar_member(archive, member, path, into, strip)

    def _tar_member(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, into: str, strip: int) -> None:
        if member.isdir():
            self.directory(path)
        elif member.isreg():
            if member.issparse():
                raise refused(path, "it is a sparse file")
            content = archive.extractfile(member)
            assert content is not None
            self.file(path, content, member.size, member.mode)
        elif member.issym():
            self.link(path, member.linkname)
        elif member.islnk():
            target = self._place(member.linkname, into, strip)
            if target is not None:
                self._hard_link(path, target)
        else:
            raise refused(path, "it is neither a file, a directory nor a link")

    def zip(self, file: Path, into: str) -> None:
        with _refusing_damage(), zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                path = self._place(info.filename, into, 0)
                if path is None:
                    continue
                self._count(path, info.file_size)
                mode = info.external_attr >> 16
                if info.is_dir():
                    self.directory(path)
                elif mode & 0o170000 not in (0, 0o100000):
                    raise refused(path, "it is not a plain file")
                else:
                    with archive.open(info) as content:
                        self.file(path, content, info.file_size, mode & 0o777 or 0o644)

    def directory(self, path: str) -> None:
        """Plain directories all the way; one that is a link already is refused."""
        if path in self._directories:
            return
        self.directory(path.rpartition("/")[0])
        here = self._root / path
        try:
            here.mkdir(mode=0o755)
        except FileExistsError:
            if here.is_symlink() or not here.is_dir():
                raise refused(path, "it would be written through a link or a file") from None
        self._directories.add(path)

    def file(self, path: str, content: IO[bytes], size: int, mode: int) -> None:
        target = self._free(path)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            left = size
            while left and (data := content.read(min(_CHUNK, left))):
                out.write(data)
                left -= len(data)
            if left or content.read(1):
                raise refused(path, "it does not have the size that the archive says")
            os.fchmod(fd, (mode & 0o755) | 0o644)

    def link(self, path: str, target: str) -> None:
        if target.startswith("/") or not _lexically_inside(path, target):
            raise refused(path, f"it is a link to {target!r}, outside of the tree")
        os.symlink(target, self._free(path))

    def _hard_link(self, path: str, target: str) -> None:
        source = self._root / target
        self._parents(target)
        if source.is_symlink() or not source.is_file():
            raise refused(path, f"it is a hard link to {target!r}, which is no file of the archive")
        made = self._free(path)
        shutil.copyfile(source, made, follow_symlinks=False)
        shutil.copymode(source, made, follow_symlinks=False)

    def _free(self, path: str) -> Path:
        """A later archive may replace a file or a link of an earlier one, never a directory."""
        self._parents(path)
        target = self._root / path
        try:
            about = target.lstat()
        except FileNotFoundError:
            return target
        if stat.S_ISDIR(about.st_mode):
            raise refused(path, "it would replace a directory")
        target.unlink()
        return target

    def _parents(self, path: str) -> None:
        self.directory(path.rpartition("/")[0])

    def _place(self, name: str, into: str, strip: int) -> str | None:
        """Where a member goes, below the root; None for what is left out."""
        if name.startswith("/"):
            raise refused(name, "its name is absolute")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise refused(name, "its name has ..")
        if len(parts) <= strip:
            return None
        path = "/".join([*(part for part in into.split("/") if part != "."), *parts[strip:]])
        if any(len(part.encode("utf-8", "surrogateescape")) > 255 for part in parts) or "\0" in path:
            raise refused(path[:100], "its name is too long or holds a NUL")
        return None if matches(path, self._leave_out) else path

    def _count(self, path: str, size: int) -> None:
        self._entries += 1
        self._bytes += size
        if self._entries > self._limits.entries:
            raise refused(path, f"there are more than {self._limits.entries} entries")
        if size > self._limits.file_bytes or self._bytes > self._limits.total_bytes:
            raise refused(path, f"there are more than {self._limits.total_bytes} bytes")


@contextmanager
def _refusing_damage() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise refused("the archive", f"it is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # what a decompressor says
            raise refused("the archive", f"it is damaged: {error}") from error
        if error.errno in _OF_THE_DISK:
            raise
        raise refused(str(error.filename or "the archive"), f"it cannot be unpacked: {error.strerror}") from error


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a pattern means this path or a directory above it."""
    parts = path.split("/")
    above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return any(
        fnmatch.fnmatchcase(each, glob) for glob in globs for each in above if each.count("/") == glob.count("/")
    )


def _lexically_inside(path: str, target: str) -> bool:
    depth = path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return False
    return True


def merged(path: str) -> str:
    """A system as Debian installs it: /bin, /sbin and /lib are those of /usr."""
    return f"usr/{path}" if path.split("/")[0] in _MERGED else path


def flat(path: str) -> str:
    """One prefix: what is in /usr and what is beside it come together, as in /usr/local."""
    return path.removeprefix("usr/") if path != "usr" else "."


def _lay_out(member: tarfile.TarInfo, layout: Layout) -> None:
    """Renames a member, and lets a link lead to where its target goes."""
    original = posixpath.normpath(member.name).lstrip("/")
    if original == ".." or original.startswith("../"):
        return  # refused later, under its own name
    member.name = layout(original)
    if member.islnk():
        member.linkname = layout(posixpath.normpath(member.linkname).lstrip("/"))
    elif member.issym():
        target = posixpath.normpath(posixpath.join("/", posixpath.dirname(original), member.linkname))
        member.linkname = posixpath.relpath(layout(target.lstrip("/")) or ".", posixpath.dirname(member.name) or ".")
