"""How busy a real GPU is, as its vendor's library tells. What it does not tell stays unknown."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuaas.node.host.gpus import amd, nvml
from gpuaas.node.host.gpus.gpu import Gpu, label
from gpuaas.wire.node import GpuSample

_TEMPERATURE_OF_GPU = 0
_MIB = 2**20
_MOST_CELSIUS = 1000  # more than this is a thousandth of a degree: so did the first versions of amdsmi count
_MOST_WATTS = 0xFFFF  # what amdsmi says of what it does not know, where it does not say N/A


def sample(gpu: Gpu, load_nvml: Callable[[], Any] = nvml.load, load_amd: Callable[[], Any] = amd.load) -> GpuSample:
    known: dict[str, Any] = {}
    with suppress(nvml.Unavailable, amd.Unavailable):
        if gpu.vendor == "nvidia":
            known = _nvidia(load_nvml(), gpu.uuid)
        elif gpu.vendor == "amd":
            known = _amd(load_amd(), gpu.bus)
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


def _amd(library: Any, bus: str) -> dict[str, Any]:
    """Each question on its own here too: what a model does not tell is an error, or the word N/A."""
    known: dict[str, Any] = {}
    with suppress(library.AmdSmiException):
        handle = library.amdsmi_get_processor_handle_from_bdf(bus)
        with suppress(library.AmdSmiException):
            known["busy_percent"] = _number(library.amdsmi_get_gpu_activity(handle).get("gfx_activity"), 100)
        with suppress(library.AmdSmiException):
            memory = library.amdsmi_get_gpu_vram_usage(handle)  # in MiB
            used, total = (_number(memory.get(name), 2**40) for name in ("vram_used", "vram_total"))
            if used is not None and total:
                known |= {"memory_used_mib": int(used), "memory_mib": int(total)}
        known["temperature_celsius"] = _celsius(library, handle)
        with suppress(library.AmdSmiException):
            known["power_watts"] = _watts(library.amdsmi_get_power_info(handle))
    return {name: value for name, value in known.items() if value is not None}


def _celsius(library: Any, handle: Any) -> float | None:
    """Instinct cards have no sensor at the edge."""
    sensors, current = library.AmdSmiTemperatureType, library.AmdSmiTemperatureMetric.CURRENT
    for sensor in (sensors.EDGE, sensors.JUNCTION):
        with suppress(library.AmdSmiException):
            value = _number(library.amdsmi_get_temp_metric(handle, sensor, current), 1e6)
            if value is not None:
                return value / 1000 if value > _MOST_CELSIUS else value
    return None


def _watts(power: dict[str, Any]) -> float | None:
    """By generation of the card and of the library one or another of these has a number."""
    names = ("socket_power", "current_socket_power", "average_socket_power")
    found = (_number(power.get(name), _MOST_WATTS - 1) for name in names)
    return next((value for value in found if value), None)


def _number(value: Any, most: float) -> float | None:
    """None: it is not known, or cannot be."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= most else None
