"""Background processes of ours, known by a file each. A process is ours only if it started when the file says.

Signals go through a pidfd that was opened before the check, so that a reused number is never hit.
"""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuaas import __version__
from gpuaas.kit.errors import Problem

_LOG_LIMIT_BYTES = 10 * 1024 * 1024
_DEAD = "ZX"


class Daemon:
    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._file = directory / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        with self._opened() as process:
            return process is not None

    def runs(self, arguments: Sequence[str], secret: str = "") -> bool:
        """Is it there, of this version, and started with these arguments?"""
        return self.running() and self._record().get("fingerprint") == _fingerprint(arguments, secret)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], secret: str = "") -> None:
        """`gpuaas ARGUMENTS` in a session of its own. `secret` (not kept) is a part of what it was started with."""
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpuaas.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=dict(environment),
                start_new_session=True,
            )
        pid = self._child.pid
        found = {"pid": pid, "boot": _boot(), "started": _started(pid), "fingerprint": _fingerprint(arguments, secret)}
        write_private(self._file, json.dumps(found))

    def stop(self, grace_seconds: float) -> bool:
        """SIGTERM, and SIGKILL when that was not enough. False: there was nothing to stop."""
        with self._opened() as process:
            if process is None:
                return False
            signal.pidfd_send_signal(process, signal.SIGTERM)
            if not _ended(process, grace_seconds):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                _ended(process, 10.0)
        if self._child is not None:
            self._child.wait()
        self._file.unlink(missing_ok=True)
        return True

    def require(self, hint: str) -> None:
        """An error with the end of the log when it is no longer there."""
        if self._child is not None:
            self._child.poll()
        if not self.running():
            raise Problem(
                f"{self.name}_ended", 500, f"The {self.name} ended while it started.", hint, detail=self.tail()
            )

    def tail(self, lines: int = 15) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _record(self) -> dict[str, object]:
        try:
            found = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        """A pidfd of the process, if it is the one that we started."""
        record = self._record()
        pid = record.get("pid")
        if not isinstance(pid, int) or pid <= 1 or record.get("boot") != _boot():
            yield None
            return
        try:
            process = os.pidfd_open(pid)
        except OSError:
            yield None
            return
        try:
            yield process if record.get("started") == _started(pid) is not None else None
        finally:
            os.close(process)


def write_private(file: Path, text: str) -> None:
    """In one step, and readable by nobody else at any moment."""
    descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(descriptor, "w") as output:
        output.write(text + "\n")
        output.flush()
        os.fsync(descriptor)
    os.replace(partial, file)


def _started(pid: int) -> int | None:
    """When the process started, in ticks since boot; None: it is gone, or only its exit status is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in _DEAD else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _ended(process: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _fingerprint(arguments: Sequence[str], secret: str) -> str:
    return hashlib.sha256(json.dumps([__version__, sys.executable, *arguments, secret]).encode()).hexdigest()
