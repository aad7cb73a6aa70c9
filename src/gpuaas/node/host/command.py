"""Runs one program of the host: bounded in time and output, never through a shell, killed with all its children."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas.kit.errors import HostError

_KEPT_BYTES = 64 * 1024
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Nothing of the agent's own environment: it may hold a join token.
_ENVIRONMENT = {"PATH": SEARCH_PATH, "LC_ALL": "C"}


@dataclass(frozen=True)
class Done:
    code: int  # negative: the signal that ended it
    output: str  # the end of stdout and stderr, together
    seconds: float

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def run(argv: Sequence[str], timeout_seconds: float, pass_fds: Sequence[int] = ()) -> Done:
    """Whatever its exit code. HostError when it cannot be started or does not end in time."""
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT,
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise HostError("run", argv[0], error.strerror or str(error), transient=False) from error
    try:
        output = _read_until_end(process, started + timeout_seconds)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
    seconds = time.monotonic() - started
    if output is None:
        raise HostError("run", argv[0], f"did not end within {timeout_seconds:g} seconds and was killed")
    return Done(process.returncode, output.decode(errors="replace"), seconds)


def _read_until_end(process: "subprocess.Popen[bytes]", deadline: float) -> bytes | None:
    """None: it did not end in time. Waits for the process, not for its pipe: a daemon it left may keep that open."""
    assert process.stdout is not None
    pipe, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
    os.set_blocking(pipe, False)
    kept, waiting = b"", select.poll()  # not select(): a node with many machines has more than its 1,024 descriptors
    for each in (pipe, ended):
        waiting.register(each, select.POLLIN)
    try:
        while True:
            ready = {fd for fd, _ in waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)}
            if pipe in ready:
                data = os.read(pipe, _KEPT_BYTES)
                kept = (kept + data)[-_KEPT_BYTES:]
                if not data:
                    waiting.unregister(pipe)
            elif ended in ready:
                process.wait()
                return kept
            if not ready or time.monotonic() > deadline:
                return None
    finally:
        os.close(ended)
