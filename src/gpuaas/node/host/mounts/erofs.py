"""EROFS images: mounted from the file itself where the kernel can (6.12), through a loop device where it cannot."""

import errno
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.mounts import loops, mounts
from gpuaas.node.host.mounts.mounts import Attribute

READ_ONLY = Attribute.READ_ONLY | Attribute.NOSUID | Attribute.NODEV


def mounted(image: Path, backing: int) -> int:
    """A detached mount of it, either way; `backing` is a handle to read it. The caller closes what it gets."""
    try:
        return from_file(backing)
    except HostError as error:
        if not _needs_device(error):
            raise
    return by_loop(image)


def from_file(backing: int) -> int:
    # By handle: a machine reads the name of the source, which says nothing about this host.
    return mounts.filesystem("erofs", {"source": f"/proc/self/fd/{backing}"}, READ_ONLY)


def by_loop(image: Path) -> int:
    try:
        with loops.attached(image, read_only=True) as device:
            return mounts.filesystem("erofs", {"source": str(device), "ro": None}, READ_ONLY)
    finally:
        loops.make_direct()


def _needs_device(error: HostError) -> bool:
    """Not so where the kernel does not know EROFS at all (ENODEV): no device would help."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.ENOTBLK
