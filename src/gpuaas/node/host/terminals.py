"""Writes to the terminals that are open in a machine, from outside, as `wall` would from inside.

The tree is the tenant's: it is walked by `safepath`, and what is found must be a terminal of the devpts that is mounted
there before it is opened. A terminal whose user has stopped its output, or that is gone, is passed over: nobody waits.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import safepath

_MAJORS = range(136, 144)  # of pseudo terminals (Documentation/admin-guide/devices.txt)
_MOST = 256


def write(pid: int, lives: Callable[[], bool], text: str) -> int:
    """To all terminals below the root of a process; how many. `lives`: the number is still that process."""
    line = f"\r\n\a*** {text} ***\r\n".encode("ascii", "replace")
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        if not lives():
            return 0
        directory = safepath.open_dir(root, "dev/pts")
    except HostError:
        return 0  # its own root has made something else of it: then there is no terminal of ours
    finally:
        os.close(root)
    try:
        names = [entry.name for entry in os.scandir(directory) if entry.name.isdigit()]
        return sum(_told(directory, name, line) for name in sorted(names, key=int)[:_MOST])
    finally:
        os.close(directory)


def _told(directory: int, name: str, line: bytes) -> bool:
    with suppress(OSError):
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            found, around = os.fstat(handle), os.fstat(directory)
            is_terminal = stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) in _MAJORS
            if not is_terminal or found.st_dev != around.st_dev:
                return False
            again = Path("/proc/self/fd") / str(handle)
            fd = os.open(again, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(handle)
        try:
            return os.write(fd, line) > 0
        finally:
            os.close(fd)
    return False
