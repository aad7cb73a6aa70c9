"""A runtime shown and switched by hand: mount(2) of its image, a link renamed, and the directory on the disk.

In no other namespace, with nobody's ids, and nothing is read back.
"""

import ctypes
import os
import time
from pathlib import Path

_READ_ONLY = 0x1 | 0x2 | 0x4  # with nosuid and nodev
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


class Floor:
    def __init__(self, directory: Path, image: Path) -> None:
        self._image = os.fsencode(image)
        self._target = directory / "1.0"
        self._target.mkdir(parents=True)
        self._dir = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def apply(self) -> float:
        """The seconds that mount, rename and fsync take together."""
        began = time.perf_counter()
        if _libc.mount(self._image, os.fsencode(self._target), b"erofs", _READ_ONLY, None) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"mount {self._target}: {os.strerror(number)}")
        self._rename()
        taken = time.perf_counter() - began
        _libc.umount2(os.fsencode(self._target), 0)
        return taken

    def switch(self) -> float:
        """The seconds of rename and fsync alone."""
        began = time.perf_counter()
        self._rename()
        return time.perf_counter() - began

    def close(self) -> None:
        os.close(self._dir)

    def _rename(self) -> None:
        os.symlink("1.0", ".current", dir_fd=self._dir)
        os.rename(".current", "current", src_dir_fd=self._dir, dst_dir_fd=self._dir)
        os.fsync(self._dir)
