"""Makes sure that a GPU carries nothing of its last user, and says how it knows. Fails closed: no proof, not clean."""

import hashlib
import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.command import Done, run
from gpuaas.node.host.gpus.gpu import Gpu, label
from gpuaas.node.host.gpus.marks import Marks
from gpuaas.node.host.gpus.simulated import MEMORY_BYTES, Simulated
from gpuaas.wire.node import Scrub

Wipe = Callable[[int], str]  # takes the descriptor of the lock, gives the evidence, or raises HostError
_CHUNK_BYTES = 1024 * 1024
MAX_EVIDENCE = 1000


@dataclass(frozen=True)
class Commands:
    """How a vendor's GPU is reset. {uuid}, {index} and {bus} are filled in. From the node's own configuration only."""

    nvidia: tuple[str, ...] = ("nvidia-smi", "--gpu-reset", "-i", "{uuid}")
    amd: tuple[str, ...] = ("amd-smi", "reset", "--gpureset", "--gpu", "{bus}")
    mig: tuple[str, ...] = ()  # an instance cannot be reset on its own: the operator must say how to clear one
    timeout_seconds: float = 60.0

    def of(self, gpu: Gpu) -> tuple[str, ...]:
        """Empty: there is none."""
        return self.mig if is_instance(gpu) else tuple(getattr(self, gpu.vendor, ()))


def cleared_by(mig: str) -> Commands:
    """With the operator's word on MIG instances, as it is written on a command line."""
    return Commands(mig=tuple(shlex.split(mig)))


def scrub(gpu: str, marks: Marks, wipe: Wipe, card: str = "") -> Scrub:
    """The mark is set before and goes only after success: whoever dies in between leaves a dirty GPU."""
    try:
        with marks.hold(gpu) as lock:
            marks.dirty(gpu, "a scrub of it has begun and not ended", card)
            evidence = wipe(lock)
            marks.clean(gpu)
    except HostError as error:
        return Scrub(label(gpu), clean=False, evidence=_plain(error.cause))
    except OSError as error:
        return Scrub(label(gpu), clean=False, evidence=_plain(str(error)))
    return Scrub(label(gpu), clean=True, evidence=_plain(evidence))


def by_reset(gpu: Gpu, commands: Commands) -> Wipe:
    """A reset drops everything that the GPU's memory held."""

    def wipe(lock: int) -> str:
        done = _run(gpu, commands, (lock,))
        return f"reset by {done[0]} in {done[1].seconds:.1f} s: {done[1].last_line or 'no output'}"

    return wipe


def reset(gpu: Gpu, commands: Commands) -> None:
    """On restart of an allocation: hung driver state is the usual reason to restart.

    A MIG instance has no reset of its own, and its GPU's would end what others compute: it is left as it is.
    """
    if is_instance(gpu) and not commands.mig:
        return
    _run(gpu, commands, ())


def by_overwriting(simulated: Simulated, uuid: str, timeout_seconds: float = 60.0) -> Wipe:
    """For a simulated GPU: zeros over its bytes, down to the disk, and read back from there."""

    def wipe(lock: int) -> str:
        trouble = simulated.scrub_trouble(uuid)
        if trouble:
            raise HostError("scrub", uuid, trouble)
        return _overwrite(simulated.memory(uuid), MEMORY_BYTES, time.monotonic() + timeout_seconds)

    return wipe


def _overwrite(path: Path, size: int, deadline: float) -> str:
    zeros = bytes(_CHUNK_BYTES)
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise HostError("scrub", str(path), "it is not a regular file", transient=False)
        os.ftruncate(fd, size)  # its tenant may have made it longer or shorter
        for offset in range(0, size, _CHUNK_BYTES):
            _in_time(deadline)
            _write_all(fd, memoryview(zeros)[: size - offset], offset)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)
        digest, length = hashlib.sha256(), 0
        while data := os.pread(fd, _CHUNK_BYTES, length):
            _in_time(deadline)
            if data.count(0) != len(data):
                raise HostError("scrub", str(path), f"what was read back near byte {length} is not zero")
            digest.update(data)
            length += len(data)
    finally:
        os.close(fd)
    if length != size:
        raise HostError("scrub", str(path), f"{length} bytes were read back instead of {size}")
    return f"{size} bytes overwritten and read back as zero, sha256 {digest.hexdigest()}"


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _in_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise HostError("scrub", "memory", "it did not end in time")


def _run(gpu: Gpu, commands: Commands, pass_fds: Sequence[int]) -> tuple[str, Done]:
    template = commands.of(gpu)
    if not template:
        kind = "a MIG instance" if gpu.vendor == "nvidia" else f"a GPU of {gpu.vendor}"
        raise HostError("reset", gpu.uuid, f"no command is configured that clears {kind}", transient=False)
    values = {"uuid": gpu.uuid, "index": str(gpu.index), "bus": gpu.bus}
    argv = [re.sub(r"\{(uuid|index|bus)\}", lambda match: values[match[1]], part) for part in template]
    done = run(argv, commands.timeout_seconds, pass_fds)
    if done.code != 0:
        how = f"was killed by signal {-done.code}" if done.code < 0 else f"answered {done.code}"
        raise HostError("reset", gpu.uuid, f"{argv[0]} {how}: {done.last_line or 'no output'}")
    return argv[0], done


def is_instance(gpu: Gpu) -> bool:
    return bool(gpu.card) or gpu.parts > 1 or gpu.uuid.startswith("MIG-")


def _plain(text: str) -> str:
    return re.sub(r"[^ -~]+", " ", text).strip()[:MAX_EVIDENCE]
