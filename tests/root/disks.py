"""A file system of a test's own, in a file: one that can be filled, and one whose power can be cut."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2


class Disk:
    def __init__(self, work: Path, mib: int) -> None:
        self.path = work / "disk"
        self._file, self._fill = work / "disk.ext4", self.path / "of-somebody-else"
        self.path.mkdir()
        with self._file.open("wb") as file:
            file.truncate(mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m0", "-Elazy_itable_init=1", str(self._file)], check=True, timeout=60)
        self._mount()

    def fill(self, leave_kib: int = 0) -> None:
        """To the last block, or these before it, by somebody else."""
        fd = os.open(self._fill, os.O_WRONLY | os.O_CREAT)
        try:
            step, size = shutil.disk_usage(self.path).free, 0
            while step >= 4096:
                try:
                    os.posix_fallocate(fd, size, step)
                    size += step
                except OSError:
                    step //= 2
            os.ftruncate(fd, max(0, os.fstat(fd).st_size - (leave_kib << 10)))
        finally:
            os.close(fd)

    def empty(self) -> None:
        self._fill.unlink()

    def cut(self) -> None:
        """What was not on the disk by now never will be. Then the machine starts again."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)
        self.close()
        self._mount()

    def close(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True, timeout=60)

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._file), str(self.path)], check=True, timeout=60)


@contextmanager
def disk(work: Path, mib: int) -> Iterator[Disk]:
    made = Disk(work, mib)
    try:
        yield made
    finally:
        made.close()
