"""The agent's small files on a real file system: written aside, fsynced, renamed, directory fsynced.

Works from one directory handle and never follows a link, so that no path of it can be redirected.
"""

import fcntl
import os
import re
import stat
from pathlib import Path

from gpuaas.kit.errors import HostError

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")
_TEMPORARY = ".writing-"


class FileDisk:
    """`sync=False` keeps what survives a killed process but not a power cut: for what is made anew after one."""

    def __init__(self, directory: Path, *, sync: bool = True) -> None:
        self._sync = sync
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.fchmod(self._dir, 0o700)
        for name in os.listdir(self._dir):
            if name.startswith(_TEMPORARY):
                os.unlink(name, dir_fd=self._dir)

    def read(self, name: str) -> bytes | None:
        _check("read", name)
        try:
            # O_NONBLOCK: a FIFO in the place of a file must not hang the agent.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._dir)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HostError("read", name, str(error)) from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise HostError("read", name, "it is not a regular file", transient=False)
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read()
        except OSError as error:
            raise HostError("read", name, str(error)) from error
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        _check("write", name)
        try:
            self._write(name, data)
        except OSError as error:
            raise HostError("write", name, str(error)) from error

    def remove(self, name: str) -> None:
        _check("remove", name)
        try:
            os.unlink(name, dir_fd=self._dir)
            self._sync_directory()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise HostError("remove", name, str(error)) from error

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self._dir) if _NAME.fullmatch(name))

    def hold(self) -> None:
        """Makes sure that this is the only agent here, until the process ends: two would undo each other's work."""
        try:
            fcntl.flock(self._dir, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HostError("hold", "the state directory", "another agent is using it", transient=False) from error

    def close(self) -> None:
        os.close(self._dir)

    def _write(self, name: str, data: bytes) -> None:
        temporary = _TEMPORARY + name
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=self._dir)
        try:
            os.fchmod(fd, 0o600)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if self._sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=self._dir, dst_dir_fd=self._dir)
        self._sync_directory()

    def _sync_directory(self) -> None:
        if self._sync:
            os.fsync(self._dir)


def _check(action: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise HostError(action, repr(name), "not a name for a file of the agent", transient=False)
