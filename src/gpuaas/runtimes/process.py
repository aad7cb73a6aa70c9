"""Runs one program: no shell, bounded in time and in what is kept of its output, which goes into the build's log as it
comes: a build that is killed has told what it hung in. A failure tells the last lines."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from gpuaas.kit.errors import Problem

# Of the caller's environment only what a network or a machine may need; a build must not depend on the rest.
_KEPT = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT_SECONDS = 3600.0
KEPT_BYTES = 16 * 2**20
_CHUNK = 64 * 1024
_LOOK_SECONDS = 0.5


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PATH": _PATH, "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", **more}


def run(
    argv: Sequence[str],
    log: IO[bytes] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    what: str = "",
    whole: bool = False,
    given_up: threading.Event | None = None,
) -> str:
    """What it printed, or the end of it: one that would print more than we keep fails if the `whole` is needed.

    A Problem when it fails, with its last lines as detail. Whoever runs it in a thread ends it by `given_up`.
    """
    name = what or os.path.basename(argv[0])
    if log is not None:
        log.write(f"$ {name}\n".encode())
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env if env is not None else environment()),
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        said = f"{argv[0]} cannot be started: {error.strerror}"
        raise Problem("build_failed", 500, said, "Run `make setup`, or install what it belongs to.") from error
    kept: deque[bytes] = deque()
    try:
        _follow(process, kept, log, time.monotonic() + timeout_seconds, whole, given_up or threading.Event())
    except InterruptedError as error:
        raise Problem("build_failed", 500, f"{name} was stopped.") from error
    except subprocess.TimeoutExpired as error:
        said = f"{name} did not end within {timeout_seconds:g} seconds."
        raise Problem("build_failed", 500, said, detail=_last(kept)) from error
    except OverflowError as error:
        raise Problem("build_failed", 500, f"{name} printed more than {KEPT_BYTES} bytes.") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if process.returncode != 0:
        ended = f"code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise Problem("build_failed", 500, f"{name} failed with {ended}.", detail=_last(kept))
    return b"".join(kept).decode(errors="replace")


def _follow(
    process: subprocess.Popen[bytes],
    kept: deque[bytes],
    log: IO[bytes] | None,
    ends: float,
    whole: bool,
    given_up: threading.Event,
) -> None:
    """Until it has ended: what it prints goes into the log as it comes, and the last of it into `kept`."""
    assert process.stdout is not None
    size = 0
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = ends - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            if given_up.is_set():
                raise InterruptedError
            if not ready.select(min(left, _LOOK_SECONDS)):
                continue
            data = process.stdout.read(_CHUNK)
            if not data:
                break
            if log is not None:
                log.write(data)
                log.flush()
            kept.append(data)
            size += len(data)
            while size > KEPT_BYTES:
                if whole:
                    raise OverflowError
                size -= len(kept.popleft())
    process.wait(max(0.0, ends - time.monotonic()))


def _last(kept: deque[bytes]) -> str:
    return "\n".join(b"".join(kept).decode(errors="replace").strip().splitlines()[-15:])
