"""Images of runtimes on the server's disk, by digest: what is here under its name was checked, byte for byte.

A directory that several replicas may share. What arrives is kept beside, also half, until it is complete.

<sha256>.erofs
.<sha256>.partial     what has arrived of one
.<sha256>.aside       about to be removed: not here for anybody, and back in a moment if somebody turns out to need it
.<sha256>.lost        it was damaged here and removed; until it is sent again
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpuaas.kit.errors import Problem, conflict, invalid

SPARE_BYTES = 512 * 2**20  # the disk is also the database's, where both are on one
_NAME = re.compile(r"([0-9a-f]{64})\.erofs|\.([0-9a-f]{64})\.(partial|aside)")


@dataclass(frozen=True)
class Stored:
    """A file of the directory: an image, or the half of one."""

    digest: str
    size: int
    changed: float  # unix seconds
    whole: bool


class Images:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.streams = 0  # to nodes, right now

    def path(self, digest: str) -> Path:
        return self.directory / f"{digest}.erofs"

    def complete(self, digest: str) -> bool:
        return self.path(digest).exists()

    def lost(self, digest: str) -> bool:
        """Whether it was in this very directory, and is not any more. One that never was here may be elsewhere."""
        return self._lost(digest).exists() and not self.complete(digest)

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
        with self._own(digest) as file:
            here = size if self.complete(digest) else os.fstat(file.fileno()).st_size
            if first > here:
                said = f"{here} bytes are here, and this begins at {first}."
                raise conflict("hole", said, "Go on where it ends.", received=here)
            if shutil.disk_usage(self.directory).free < size - here + SPARE_BYTES:
                raise _full(f"there is no room for {size - here} bytes more")
            yield Arrival(self, file, digest, size, here, skip=here - first)

    @contextmanager
    def _own(self, digest: str) -> Iterator[BinaryIO]:
        """What has arrived of it, for one writer. Not a file that lost its name while we opened it."""
        while True:
            with self._partial(digest).open("ab") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    said = "Somebody else sends this image right now."
                    raise conflict("in_progress", said, "Wait for them.", retry_after=5) from error
                if not _is_at(file, self._partial(digest)):
                    continue
                yield file
                return

    def _partial(self, digest: str) -> Path:
        return self.directory / f".{digest}.partial"

    def _aside(self, digest: str) -> Path:
        return self.directory / f".{digest}.aside"

    def _lost(self, digest: str) -> Path:
        return self.directory / f".{digest}.lost"

    def stored(self) -> list[Stored]:
        """Everything that takes room, also what was put aside by somebody who was killed then."""
        found = {}
        for name in os.listdir(self.directory) if self.directory.exists() else ():
            if (match := _NAME.fullmatch(name)) is None:
                continue
            try:
                about = (self.directory / name).stat()
            except FileNotFoundError:
                continue
            one = Stored(match[1] or match[2], about.st_size, about.st_mtime, match[3] != "partial")
            found[one.digest, one.whole] = one
        return [found[key] for key in sorted(found)]

    def verify(self, digest: str) -> str:
        """Reads all of it: intact, damaged or missing. A damaged one is gone then, and can be sent again."""
        try:
            with self.path(digest).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return "intact"
                if _is_at(file, self.path(digest)):  # and not what somebody has sent meanwhile
                    self._lost(digest).touch()
                    self.path(digest).unlink(missing_ok=True)
                    _sync(self.directory)
        except FileNotFoundError:
            return "missing"
        except OSError as error:  # of a disk, or of a share that is away: no word about the image
            said = "The image cannot be read."
            raise Problem("image_unreadable", 503, said, "Look at the server's disk.", detail=str(error)) from error
        return "damaged"

    def put_aside(self, digest: str) -> bool:
        """From here on it is not here; whether it was."""
        try:
            self.path(digest).rename(self._aside(digest))
        except FileNotFoundError:
            return self._aside(digest).exists()
        return True

    def bring_back(self, digests: Iterable[str]) -> None:
        """Somebody needs them, or whoever put them aside is gone. Never wrong: an image under its name harms nobody."""
        for digest in digests:
            try:
                self._aside(digest).rename(self.path(digest))
            except FileNotFoundError:
                continue

    def bring_back_all(self) -> None:
        """At the start of a server: one that was killed may have left some aside that are needed."""
        for file in self.directory.glob(".*.aside") if self.directory.exists() else ():
            self.bring_back([file.name.removeprefix(".").removesuffix(".aside")])

    def drop_aside(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._aside(digest).unlink(missing_ok=True)

    def drop_partial(self, digest: str) -> bool:
        """Unless somebody sends it right now."""
        try:
            with self._partial(digest).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._partial(digest).unlink(missing_ok=True)
        except (FileNotFoundError, BlockingIOError):
            return False
        return True

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
        self._lost(digest).unlink(missing_ok=True)
        _sync(self.directory)


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


def _sync(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _full(why: str) -> Problem:
    return Problem(
        "disk_full", 503, "The server has no room for this image.", "Tell an operator.", detail=why,
        extra={"retry_after": 60},
    )  # fmt: skip
