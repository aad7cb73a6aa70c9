"""Images of runtimes by digest: verified, on the disk, and only then under their name. There is no half of an image.

<state>/runtime-images/<sha256>.erofs
<state>/runtime-images/.<sha256>.part     what has arrived of one; the next try goes on from there
"""

import errno
import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.runtimes.stamps import Stamps

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"([0-9a-f]{64})\.erofs")
_CHUNK = 1 << 20
# What machines write has to go somewhere too: images never take the last of a disk, and unused ones go before that.
_RESERVED_SHARE, _MOST_RESERVED = 0.05, 20 << 30
_LOW = 2  # times what is reserved
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


class Store:
    """Works from one directory handle and follows no link. Only one agent uses it, and one thread per digest."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._place = directory
        self._dir = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        os.fchmod(self._dir, 0o700)
        self._stamps = Stamps(self._dir)

    def digests(self) -> dict[str, int]:
        """Every image that is here, and how large it is."""
        found = {}
        for name in os.listdir(self._dir):
            if match := _NAME.fullmatch(name):
                with suppress(FileNotFoundError):
                    found[match[1]] = os.stat(name, dir_fd=self._dir, follow_symlinks=False).st_size
        return found

    def has(self, digest: str) -> bool:
        return self._size(_image(digest)) is not None

    def changed(self, digest: str) -> bool:
        """Whether its file is here, and another than when it was last read. Costs next to nothing."""
        found = self._stat(_image(digest))
        return found is not None and not self._stamps.fits(digest, found)

    def read_at(self, digest: str) -> float:
        """When it was last found to be what its name says, in unix seconds."""
        found = self._stat(_image(digest))
        return found.st_mtime if found is not None else 0.0

    def open(self, digest: str) -> int:
        """A handle to read it. The caller closes it."""
        with asking("open", f"image {digest}"):
            return os.open(_image(digest), os.O_RDONLY | _FLAGS, dir_fd=self._dir)

    def path(self, digest: str) -> Path:
        return self._place / _image(digest)

    def arrived(self, digest: str) -> int:
        """How much of it is here, in bytes."""
        return self._size(_part(digest)) or 0

    def begin(self, digest: str, size: int) -> int:
        """How much of it is here; refused when there is no room for the rest."""
        with asking("look at", f"image {digest}"):
            if self.arrived(digest) > size:
                os.unlink(_part(digest), dir_fd=self._dir)
            here = self.arrived(digest)
            self._have_room(digest, size - here)
        return here

    def low(self) -> bool:
        """Whether the disk is so full that what nobody uses should go now."""
        free, reserved = self._disk()
        return free < _LOW * reserved

    def _have_room(self, digest: str, size: int) -> None:
        free, reserved = self._disk()
        if free - size < reserved:
            cause = f"it needs {_mib(size)} MiB, and {_mib(reserved)} MiB of the node's disk have to stay free"
            raise HostError("fetch", f"image {digest[:12]}", cause)

    def _disk(self) -> tuple[int, int]:
        """Bytes that are free, and bytes that have to be."""
        disk = os.statvfs(self._dir)
        reserved = min(_MOST_RESERVED, int(disk.f_blocks * disk.f_frsize * _RESERVED_SHARE))
        return disk.f_bavail * disk.f_frsize, reserved

    def append(self, digest: str, offset: int, data: bytes) -> bool:
        """False: other than `offset` bytes of it are here, and nothing was written."""
        with asking("write", f"image {digest}"):
            self._have_room(digest, len(data))  # again: others write too while it comes
            fd = os.open(_part(digest), os.O_WRONLY | os.O_CREAT | _FLAGS, 0o600, dir_fd=self._dir)
            try:
                if os.fstat(fd).st_size != offset:
                    return False
                os.lseek(fd, offset, os.SEEK_SET)
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
            finally:
                os.close(fd)
        return True

    def settle(self, digest: str) -> bool:
        """All of it has arrived. False: it is not what its name says, and was thrown away."""
        with asking("store", f"image {digest}"):
            fd = os.open(_part(digest), os.O_RDONLY | _FLAGS, dir_fd=self._dir)
            try:
                found = self._hash_part(fd, digest)
                if found != digest:
                    os.unlink(_part(digest), dir_fd=self._dir)
                    return False
                os.fsync(fd)
                os.rename(_part(digest), _image(digest), src_dir_fd=self._dir, dst_dir_fd=self._dir)
                os.fsync(self._dir)
                self._stamps.put(digest, fd)
            finally:
                os.close(fd)
        return True

    def _hash_part(self, fd: int, digest: str) -> str | None:
        try:
            return _hash(fd)
        except OSError:  # the disk has lost a part of it: the next try is not to end here again
            os.unlink(_part(digest), dir_fd=self._dir)
            raise

    def oldest(self) -> tuple[str, float] | None:
        """The image that was verified longest ago, and when."""
        verified = {digest: self.read_at(digest) for digest in self.digests()}
        return min(verified.items(), key=lambda each: each[1], default=None)

    def intact(self, digest: str, go_on: Callable[[], bool] = lambda: True, bytes_per_second: float = 0) -> bool:
        """Reads all of it, from the disk. One that is not here is not intact; one that is not read to its end is,
        and one that went or was replaced meanwhile."""
        try:
            fd = os.open(_image(digest), os.O_RDONLY | _FLAGS, dir_fd=self._dir)
        except FileNotFoundError:
            return False
        try:
            with asking("read", f"image {digest}"):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # memory may still be right where the disk is not
                found = _hash(fd, go_on, bytes_per_second)
                if not self._is_at(fd, digest):
                    return True
                if found == digest:
                    os.utime(fd)  # verified now; see `oldest`
                    self._stamps.put(digest, fd)
                return found in (digest, None)
        except HostError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO:
                return False  # the disk has lost a part of it
            raise
        finally:
            os.close(fd)

    def remove(self, digest: str) -> None:
        """Whoever has it mounted keeps it until then."""
        with asking("remove", f"image {digest}"):
            for name in (_image(digest), _part(digest)):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self._dir)
            self._stamps.remove(digest)
            os.fsync(self._dir)

    def parts(self) -> set[str]:
        """Images of which something has arrived."""
        names = (name[1:].removesuffix(".part") for name in os.listdir(self._dir) if name.startswith("."))
        return {name for name in names if _DIGEST.fullmatch(name)}

    def _is_at(self, fd: int, digest: str) -> bool:
        """Whether this is the image still: another one may have been fetched while it was read."""
        found = self._stat(_image(digest))
        return found is not None and os.path.samestat(found, os.fstat(fd))

    def _size(self, name: str) -> int | None:
        found = self._stat(name)
        return found.st_size if found is not None else None

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self._dir, follow_symlinks=False)
        except FileNotFoundError:
            return None


def _hash(fd: int, go_on: Callable[[], bool] = lambda: True, bytes_per_second: float = 0) -> str | None:
    digest = hashlib.sha256()
    offset = 0
    while data := os.pread(fd, _CHUNK, offset):
        digest.update(data)
        offset += len(data)
        if not go_on():
            return None
        if bytes_per_second:
            time.sleep(len(data) / bytes_per_second)
    return digest.hexdigest()


def _image(digest: str) -> str:
    return f"{_checked(digest)}.erofs"


def _part(digest: str) -> str:
    return f".{_checked(digest)}.part"


def _checked(digest: str) -> str:
    # Becomes a path, as root: looked at here too, wherever it came from.
    if _DIGEST.fullmatch(digest) is None:
        raise HostError("find", repr(digest), "not the digest of an image", transient=False)
    return digest


def _mib(size: int) -> int:
    return -(-size // 2**20)
