"""Loop devices: a file as a disk. A device frees itself when its last user is gone, so a killed agent leaves none.

The image is locked through the handle that the loop device keeps: one image can never be attached twice, which would
destroy it, and whether it is still in use is asked of the lock.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import asking

_GET_FREE, _CONFIGURE, _SET_DIRECT_IO = 0x4C82, 0x4C0A, 0x4C08
_READ_ONLY, _AUTOCLEAR = 1, 4
# struct loop_config: fd, block size, struct loop_info64 (5 u64, 4 u32, 3 texts, 2 u64), 8 reserved u64.
_CONFIG = struct.Struct("=II5Q4I64s64s32s2Q8Q")
_TRIES = 64
_buffered: list[int] = []  # devices that this process has attached, as long as they are not direct


@contextmanager
def attached(image: Path, *, read_only: bool = False) -> Iterator[Path]:
    """The device of `image`, for as long as it takes to mount it; the mount keeps it from then on.

    What a mount reads first is in the page cache, because the image was just written: call `make_direct` afterwards.
    """
    flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_NOFOLLOW | os.O_CLOEXEC
    with asking("open", image):
        backing = os.open(image, flags)
    try:
        if not _lock(backing):
            raise HostError("attach", str(image), "it is in use already")
        device, number = _configured(backing, image, _AUTOCLEAR | (_READ_ONLY if read_only else 0))
    finally:
        os.close(backing)
    try:
        yield Path(f"/dev/loop{number}")
    finally:
        _buffered.append(device)


def make_direct() -> None:
    """From here on nothing is cached twice, here and in the file system on the device. Where it cannot be, it is."""
    while _buffered:
        device = _buffered.pop()
        with suppress(OSError):
            fcntl.ioctl(device, _SET_DIRECT_IO, 1)
        os.close(device)


def in_use(image: Path) -> bool:
    """Whether a loop device still holds the image. A missing one is not in use."""
    with asking("look at", image):
        try:
            fd = os.open(image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _lock(fd)
        finally:
            os.close(fd)


def _configured(backing: int, image: Path, flags: int) -> tuple[int, int]:
    control = _open_device("loop-control", image)
    try:
        for _ in range(_TRIES):
            with asking("find a loop device for", image):
                number = fcntl.ioctl(control, _GET_FREE)
            device = _open_device(f"loop{number}", image)
            try:
                fcntl.ioctl(device, _CONFIGURE, _config(backing, image, flags))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # somebody else was faster
                    raise HostError("attach", str(image), error.strerror or str(error)) from error
            else:
                return device, number
    finally:
        os.close(control)
    raise HostError("attach", str(image), "no loop device stayed free long enough")


def _config(backing: int, image: Path, flags: int) -> bytes:
    name = os.fsencode(image.name)[:63]
    numbers = (0, 0, 0, 0, 0), (0, 0, 0, flags)
    return _CONFIG.pack(backing, 0, *numbers[0], *numbers[1], name, b"", b"", *[0] * 10)


def _open_device(name: str, image: Path) -> int:
    with asking(f"open /dev/{name} for", image):
        return os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
