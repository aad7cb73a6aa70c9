"""The GPUs of this host as the rest of the agent sees them: real or simulated, cleared and reset in their own way."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
        self._xids: Xids | None = None
        with suppress(nvml.Unavailable):
            self._xids = Xids(load())
        self._lock = threading.Lock()
        self._found = Found()
        self._looked_at = -LOOK_SECONDS

    def found(self) -> Found:
        """With what the driver has reported about each since it was last reset."""
        with self._lock:
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                found, troubles = self._look(), self._xids.poll() if self._xids else {}
                gpus = [replace(gpu, trouble=gpu.trouble or troubles.get(gpu.uuid, "")) for gpu in found.gpus]
                self._found = Found(gpus, found.unusable)
                self._looked_at = time.monotonic()
            return self._found

    def library(self) -> cdi_read.Library:
        return cdi_read.read(self._directories)

    def wipe(self, gpu: Gpu) -> scrub.Wipe:
        return scrub.by_reset(gpu, self._commands)

    def reset(self, gpu: Gpu) -> None:
        scrub.reset(gpu, self._commands)
        if self._xids is not None:
            self._xids.forget(gpu.uuid)

    def sample(self, gpu: Gpu) -> GpuSample:
        return use.sample(gpu)


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
