"""Images of runtimes on the server's disk, by digest: what is here under its name was checked, byte for byte.

A directory that several replicas may share. What arrives is kept beside, also half, until it is complete.
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gpuaas.kit.errors import Problem, conflict, invalid

SPARE_BYTES = 512 * 2**20  # the disk is also the database's, where both are on one


class Images:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.streams = 0  # to nodes, right now

    def path(self, digest: str) -> Path:
        return self.directory / f"{digest}.erofs"

    def complete(self, digest: str) -> bool:
        return self.path(digest).exists()

    def received(self, digest: str, size: int) -> int:
        """How many of its bytes are here."""
        if self.complete(digest):
            return size
        try:
            return self._partial(digest).stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def arriving(self, digest: str, size: int, first: int) -> Iterator["Arrival"]:
        """One writer at a time. What was sent before is skipped, what would leave a hole is refused."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        with self._partial(digest).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                said = "Somebody else sends this image right now."
                raise conflict("in_progress", said, "Wait for them.", retry_after=5) from error
            here = size if self.complete(digest) else os.fstat(file.fileno()).st_size
            if first > here:
                said = f"{here} bytes are here, and this begins at {first}."
                raise conflict("hole", said, "Go on where it ends.", received=here)
            if shutil.disk_usage(self.directory).free < size - here + SPARE_BYTES:
                raise _full(f"there is no room for {size - here} bytes more")
            yield Arrival(self, file, digest, size, here, skip=here - first)

    def _partial(self, digest: str) -> Path:
        return self.directory / f".{digest}.partial"

    def settle(self, digest: str, size: int) -> None:
        """All bytes are here: they are what their name says, or gone."""
        partial, path = self._partial(digest), self.path(digest)
        if path.exists():
            partial.unlink(missing_ok=True)
            return
        with partial.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            fits = found == digest and os.fstat(file.fileno()).st_size == size
            os.fsync(file.fileno())
        if not fits:
            partial.unlink(missing_ok=True)
            said = f"What arrived has the sha256 {found}, not {digest}."
            raise invalid(said, "Nothing of it was kept. Send the image again.", code="digest_mismatch")
        partial.chmod(0o644)
        partial.rename(path)
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Arrival:
    """Bytes on their way to the disk."""

    def __init__(self, images: Images, file: BinaryIO, digest: str, size: int, here: int, skip: int) -> None:
        self.here = here
        self.sent = hashlib.sha256()
        self._images, self._file, self._digest, self._size, self._skip = images, file, digest, size, skip

    def write(self, data: bytes) -> None:
        self.sent.update(data)
        new = data[self._skip :]
        self._skip = max(0, self._skip - len(data))
        if self.here + len(new) > self._size:
            raise invalid(f"The image has {self._size} bytes, and more were sent.", "Send the image of the manifest.")
        try:
            self._file.write(new)
        except OSError as error:
            raise _full(error.strerror or str(error)) if error.errno == errno.ENOSPC else error from error
        self.here += len(new)

    def close(self) -> int:
        """How many bytes are here now; when it is all, they are checked and have their name."""
        try:
            self._file.flush()
        except OSError as error:
            raise _full(error.strerror or str(error)) if error.errno == errno.ENOSPC else error from error
        if self.here == self._size:
            self._images.settle(self._digest, self._size)
        return self.here


def _full(why: str) -> Problem:
    return Problem(
        "disk_full", 503, "The server has no room for this image.", "Tell an operator.", detail=why,
        extra={"retry_after": 60},
    )  # fmt: skip
