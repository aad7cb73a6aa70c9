"""The GPUs of this host as the rest of the agent sees them: real or simulated, cleared and reset in their own way."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus import cdi_read, nvml, scrub, simulated, simulated_cdi, use
from gpuaas.node.host.gpus.discover import discover
from gpuaas.node.host.gpus.gpu import Found, Gpu, label
from gpuaas.node.host.gpus.simulated import Simulated
from gpuaas.node.host.gpus.xids import Xids
from gpuaas.wire.node import GpuSample

log = logging.getLogger(__name__)

CDI_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
LOOK_SECONDS = 20.0  # a vendor's library takes its time to answer


class RealGpus:
    """`look` finds them, `load` gives NVIDIA's library, for its events."""

    def __init__(
        self,
        commands: scrub.Commands | None = None,
        directories: Sequence[Path] = CDI_DIRECTORIES,
        look: Callable[[], Found] = discover,
        load: Callable[[], Any] = nvml.load,
    ) -> None:
        self._commands = commands or scrub.Commands()
        self._directories = directories
        self._look = look
        self._xids = _xids(load)
        self._lock = threading.Lock()
        self._found = Found()
        self._looked_at = -LOOK_SECONDS

    def found(self) -> Found:
        """With what the driver has reported about each since it was last reset."""
        with self._lock:
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                found, troubles = self._look(), self._xids.poll() if self._xids else {}
                gpus = [replace(gpu, trouble=gpu.trouble or _trouble(gpu, troubles)) for gpu in found.gpus]
                self._found = Found(gpus, found.unusable)
                self._looked_at = time.monotonic()
            return self._found

    def library(self) -> cdi_read.Library:
        return cdi_read.read(self._directories)

    def wipe(self, gpu: Gpu) -> scrub.Wipe:
        reset = scrub.by_reset(gpu, self._commands)

        def wipe(lock: int) -> str:
            evidence = reset(lock)
            self._was_reset(gpu)
            return evidence

        return wipe

    def reset(self, gpu: Gpu) -> None:
        scrub.reset(gpu, self._commands)
        self._was_reset(gpu)

    def sample(self, gpu: Gpu) -> GpuSample:
        return use.sample(gpu)

    def _was_reset(self, gpu: Gpu) -> None:
        """What was wrong with it before is over. Whoever clears a MIG instance has not reset its GPU."""
        with self._lock:
            if self._xids is not None and not gpu.card:
                self._xids.forget(gpu.uuid)
            self._looked_at = -LOOK_SECONDS


def _xids(load: Callable[[], Any]) -> Xids | None:
    try:
        library = load()
    except nvml.Unavailable:
        return None
    try:
        return Xids(library)
    except nvml.Unavailable as error:
        log.warning("critical errors of GPUs (XID) will not be seen: %s", error)
        return None


def _trouble(gpu: Gpu, troubles: dict[str, str]) -> str:
    """The driver names the whole GPU, also where only its instances are given out."""
    return troubles.get(gpu.uuid, "") or troubles.get(gpu.card, "")


class SimulatedGpus:
    def __init__(self, root: Path, gpus: str, host: str) -> None:
        self.simulated: Simulated = simulated.ensure(root, gpus, host)
        simulated_cdi.write(self.simulated)

    def found(self) -> Found:
        return Found(self.simulated.gpus())

    def library(self) -> cdi_read.Library:
        return cdi_read.read([self.simulated.root / "cdi"])

    def wipe(self, gpu: Gpu) -> scrub.Wipe:
        return scrub.by_overwriting(self.simulated, gpu.uuid)

    def reset(self, gpu: Gpu) -> None:
        try:
            self.simulated.reset(gpu.uuid)
            self.simulated.clamp()
        except OSError as error:
            raise HostError("reset", gpu.uuid, str(error)) from error

    def sample(self, gpu: Gpu) -> GpuSample:
        """Nothing computes on it, so it is idle; its memory is in use as far as somebody has written to it."""
        used_mib = self.simulated.memory(gpu.uuid).stat().st_blocks * 512 // 2**20
        return GpuSample(
            label(gpu.uuid), busy_percent=0.0, memory_used_mib=used_mib, memory_mib=gpu.memory_mib, trouble=gpu.trouble
        )


AnyGpus = RealGpus | SimulatedGpus
