"""How busy a real GPU is, as its vendor's library tells. What it does not tell stays unknown."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuaas.node.host.gpus import nvml
from gpuaas.node.host.gpus.gpu import Gpu, label
from gpuaas.wire.node import GpuSample

_TEMPERATURE_OF_GPU = 0
_MIB = 2**20


def sample(gpu: Gpu, load: Callable[[], Any] = nvml.load) -> GpuSample:
    known: dict[str, Any] = {}
    if gpu.vendor == "nvidia":
        with suppress(nvml.Unavailable):
            known = _nvidia(load(), gpu.uuid)
    known.setdefault("memory_mib", gpu.memory_mib)
    return GpuSample(label(gpu.uuid), trouble=gpu.trouble, **known)


def _nvidia(library: Any, uuid: str) -> dict[str, Any]:
    """Each question on its own: a MIG instance answers some of them only."""
    known: dict[str, Any] = {}
    with suppress(library.NVMLError):
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
        with suppress(library.NVMLError):
            known["busy_percent"] = float(library.nvmlDeviceGetUtilizationRates(handle).gpu)
        with suppress(library.NVMLError):
            memory = library.nvmlDeviceGetMemoryInfo(handle)
            known |= {"memory_used_mib": memory.used // _MIB, "memory_mib": memory.total // _MIB}
        with suppress(library.NVMLError):
            known["temperature_celsius"] = float(library.nvmlDeviceGetTemperature(handle, _TEMPERATURE_OF_GPU))
        with suppress(library.NVMLError):
            known["power_watts"] = library.nvmlDeviceGetPowerUsage(handle) / 1000
    return known
