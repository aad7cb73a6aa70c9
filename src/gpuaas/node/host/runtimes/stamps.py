"""How the file of each image was when it was last read and found to be what its name says.

    <state>/runtime-images/.<sha256>.read    inode, size, and when content and inode last changed

Whoever writes to a file changes its ctime, also if they set the other times back: one that is as it was then need not
be read again before somebody gets it. What goes wrong below the file system is found by those who read it all the same.
"""

import os
from contextlib import suppress

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES = 200


class Stamps:
    """In the store's directory. Never synced: one that is lost, or half there, only means reading once more."""

    def __init__(self, directory: int) -> None:
        self._dir = directory
        self._known: dict[str, str] = {}

    def put(self, digest: str, fd: int) -> None:
        """`fd`: the image, which was read just now."""
        said = self._known[digest] = _stamp(os.fstat(fd))
        with suppress(OSError):  # a disk that is full says nothing against the image
            stamp = os.open(_name(digest), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600, dir_fd=self._dir)
            try:
                os.write(stamp, said.encode())
            finally:
                os.close(stamp)

    def fits(self, digest: str, found: os.stat_result) -> bool:
        if digest not in self._known:
            self._known[digest] = self._read(digest)
        return self._known[digest] == _stamp(found)

    def remove(self, digest: str) -> None:
        self._known.pop(digest, None)
        with suppress(FileNotFoundError):
            os.unlink(_name(digest), dir_fd=self._dir)

    def _read(self, digest: str) -> str:
        try:
            fd = os.open(_name(digest), os.O_RDONLY | _FLAGS, dir_fd=self._dir)
        except OSError:
            return ""
        try:
            return os.read(fd, _MOST_BYTES).decode(errors="replace")
        finally:
            os.close(fd)


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _name(digest: str) -> str:
    return f".{digest}.read"
