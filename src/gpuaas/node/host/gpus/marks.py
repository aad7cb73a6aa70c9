"""Which GPUs may still carry a tenant's data. A mark outlives the agent and a power cut; only a scrub takes it away."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host.disk import FileDisk


class _Mark(Struct):
    gpu: str
    why: str
    card: str = ""  # the GPU that it is a part of


class Marks:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._disk = FileDisk(directory)

    def dirty(self, gpu: str, why: str, card: str = "") -> None:
        """Before a tenant can write to it, and before a scrub begins."""
        self._disk.write(_file(gpu), msgspec.json.encode(_Mark(gpu, why, card)))

    def clean(self, gpu: str) -> None:
        self._disk.remove(_file(gpu))

    def why(self, gpu: str) -> str:
        """Why it counts as dirty, or nothing."""
        data = self._disk.read(_file(gpu))
        if data is None:
            return ""
        mark = _decode(data)
        return mark.why if mark else "its mark cannot be read"

    def parts(self, card: str) -> dict[str, str]:
        """The parts of a GPU that are dirty, and why: one that is whole again has the same memory."""
        marks = [_decode(self._disk.read(name) or b"") for name in self._disk.names() if name.endswith(".dirty")]
        return {mark.gpu: mark.why for mark in marks if mark is not None and mark.card == card}

    def all(self) -> dict[str, str]:
        """The GPUs whose marks can be read; ask `why` before one is given out."""
        found = {}
        for name in self._disk.names():
            mark = _decode(self._disk.read(name) or b"") if name.endswith(".dirty") else None
            if mark is not None:
                found[mark.gpu] = mark.why
        return found

    @contextmanager
    def hold(self, gpu: str) -> Iterator[int]:
        """One scrub of a GPU at a time. Hand the descriptor to a child: it holds on even if the agent dies."""
        path = self._directory / _file(gpu).replace(".dirty", ".lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise HostError("scrub", gpu, "a scrub of it is still running") from error
            yield fd
        finally:
            os.close(fd)

    def close(self) -> None:
        self._disk.close()


def _file(gpu: str) -> str:
    """A UUID may hold a slash (old MIG ones do)."""
    return hashlib.sha256(gpu.encode()).hexdigest()[:32] + ".dirty"


def _decode(data: bytes) -> _Mark | None:
    try:
        return msgspec.json.decode(data, type=_Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
