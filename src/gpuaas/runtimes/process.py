"""Runs one program: no shell, bounded in time, its output into the build's log; a failure tells the last lines."""

import os
import signal
import subprocess
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
    input: bytes = b"",
    pass_fds: Sequence[int] = (),
) -> str:
    """What it printed. A Problem when it fails, with the end of its output as detail."""
    name = what or os.path.basename(argv[0])
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env if env is not None else environment()),
            cwd="/",
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except OSError as error:
        said = f"{argv[0]} cannot be started: {error.strerror}"
        raise Problem("build_failed", 500, said, "Run `make setup`, or install what it belongs to.") from error
    try:
        output, _ = process.communicate(input, timeout=timeout_seconds)
    except subprocess.TimeoutExpired as error:
        raise Problem("build_failed", 500, f"{name} did not end within {timeout_seconds:g} seconds.") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if log is not None:
        log.write(f"$ {name}\n".encode() + output)
        log.flush()
    text = output.decode(errors="replace")
    if process.returncode != 0:
        last = "\n".join(text.strip().splitlines()[-15:])
        ended = f"code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise Problem("build_failed", 500, f"{name} failed with {ended}.", detail=last)
    return text
