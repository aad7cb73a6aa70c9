"""The agent's side of the helper process (`enter`): starts it when it is first needed, and again if it has died."""

import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts.enter import FORKED, MAX_FDS, MOST_QUICK, QUICK, Reply, Request

TIMEOUT_SECONDS = 60.0
_CHUNK = 65536


class Ended(HostError):
    """It was killed: what it was asked for is done or not."""


class Helper:
    """Safe to use from many threads: their requests are served side by side."""

    def __init__(self, run: Path, keep: Sequence[Path]) -> None:
        self._run = run
        self._keep = keep
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Request, namespace: int | None, more: Sequence[int] = ()) -> tuple[Reply, list[int]]:
        """Has it performed in a namespace, or in a fresh one. The caller closes the handles that come back."""
        return self._ask(FORKED, msgspec.json.encode(request), namespace, more)

    def ask_quickly(self, request: Request, namespace: int, more: Sequence[int] = ()) -> None:
        """Operations that wait for nobody: the helper performs them itself, and everybody else's requests wait."""
        data = msgspec.json.encode(request)
        self._ask(QUICK if len(data) <= MOST_QUICK else FORKED, data, namespace, more)

    def _ask(self, way: bytes, data: bytes, namespace: int | None, more: Sequence[int]) -> tuple[Reply, list[int]]:
        mine, theirs = socket.socketpair()
        with mine:
            mine.settimeout(TIMEOUT_SECONDS)
            with theirs, self._lock:
                fds = [theirs.fileno(), *(() if namespace is None else (namespace,)), *more]
                self._send(way if way == FORKED else way + data, fds)
            with asking("ask", "the mount helper"):
                if way == FORKED:
                    mine.sendall(data)
                mine.shutdown(socket.SHUT_WR)
                data, handles = _receive(mine)
        if not data:
            raise Ended("ask", "the mount helper", "it ended before it answered")
        reply = msgspec.json.decode(data, type=Reply)
        if reply.failed is not None:
            failed = reply.failed
            raise HostError(failed.action, failed.target, failed.cause, transient=failed.transient)
        return reply, handles

    def close(self) -> None:
        with self._lock:
            self._end()

    def _send(self, message: bytes, fds: list[int]) -> None:
        for _ in range(2):
            control = self._control or self._start()
            try:
                socket.send_fds(control, [message], fds)
            except OSError:
                self._end()
            else:
                return
        raise HostError("ask", "the mount helper", "it ends as soon as it is started")

    def _start(self) -> socket.socket:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.settimeout(TIMEOUT_SECONDS)
        keep = [str(path) for path in (self._run, *self._keep)]
        # -I: nothing from the environment or the working directory decides what root imports.
        command = [sys.executable, "-I", "-m", "gpuaas.node.host.mounts.enter", str(theirs.fileno()), *keep]
        with theirs, asking("start", "the mount helper"):
            self._run.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd="/", env={"LANG": "C.UTF-8"}
            )
        self._control = mine
        with asking("start", "the mount helper"):
            answer = mine.recv(1)
        if answer != b"+":
            self._end()
            raise HostError("start", "the mount helper", "it ended at once; its output says why")
        return mine

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.wait(TIMEOUT_SECONDS)
        self._control = self._process = None


def _receive(mine: socket.socket) -> tuple[bytes, list[int]]:
    data, handles = kernel.receive(mine, _CHUNK, MAX_FDS)
    parts = [data]
    while part := mine.recv(_CHUNK):
        parts.append(part)
    return b"".join(parts), handles
