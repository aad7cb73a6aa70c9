"""NVIDIA GPUs and MIG instances, as the driver's own library (NVML) tells of them."""
# ruff: noqa: N802 (the names are NVIDIA's)

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from gpuaas.node.host.gpus import links, pci
from gpuaas.node.host.gpus.gpu import Found, Gpu, Unusable

PROC = Path("/proc")
KIND = "nvidia.com/gpu"
_UNCORRECTED, _VOLATILE = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC


class Unavailable(Exception):
    """The library is not there, or does not answer."""


class Nvml(Protocol):
    """The part of the module `pynvml` (package nvidia-ml-py) that we use. Handles are opaque."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...
    def nvmlSystemGetCudaDriverVersion_v2(self) -> int: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int: ...
    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...
    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int: ...
    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int: ...
    def nvmlDeviceGetRemappedRows(self, handle: Any) -> Any: ...
    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int: ...
    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any: ...
    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: Any, link: int) -> int: ...


def load() -> Nvml:
    try:
        module = cast(Nvml, importlib.import_module("pynvml"))
    except ImportError as error:
        raise Unavailable("nvidia-ml-py is not installed (pip install 'gpuaas[nvidia]')") from error
    try:
        module.nvmlInit()
    except (module.NVMLError, OSError) as error:
        raise Unavailable(f"NVML does not answer: {error}") from error
    return module


def read(nvml: Nvml, sysfs: Path = pci.SYSFS, proc: Path = PROC) -> Found:
    """A GPU that does not answer is named as unusable; it takes none of the others with it."""
    try:
        driver = text(nvml.nvmlSystemGetDriverVersion())
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise Unavailable(f"NVML does not answer: {error}") from error
    toolkit = f"{cuda // 1000}.{cuda % 1000 // 10}"
    found = Found()
    ends: dict[str, set[str]] = {}
    for index in range(count):
        address = ""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            address = pci.address(text(nvml.nvmlDeviceGetPciInfo(handle).busId))
            whole = _whole(nvml, handle, index, address, sysfs)
            whole = replace(whole, driver=driver, toolkit=toolkit)
            if _mig(nvml, handle):
                found.gpus.extend(_instances(nvml, handle, whole, proc))  # those have no use of the links
            else:
                found.gpus.append(whole)
                ends[address] = links.of_nvidia(nvml, handle)
        except nvml.NVMLError as error:
            found.unusable.append(Unusable(address or f"nvidia GPU {index}", f"it does not answer: {error}"))
    linked = links.groups(ends, list(ends))
    gpus = [replace(gpu, index=n, link_group=linked.get(gpu.bus)) for n, gpu in enumerate(found.gpus)]
    return Found(gpus, found.unusable)


def health(nvml: Nvml, handle: Any) -> str:
    """Why this GPU must not be given out, or nothing. What a model cannot count is no trouble."""
    try:
        errors = nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)
        if errors:
            return f"{errors} uncorrected memory errors since the driver was loaded"
    except nvml.NVMLError:
        pass
    try:
        _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    except nvml.NVMLError:
        return ""
    if failed:
        return "a faulty row of its memory could not be remapped"
    return "a faulty row of its memory waits for a reset to be remapped" if pending else ""


def _whole(nvml: Nvml, handle: Any, index: int, address: str, sysfs: Path) -> Gpu:
    uuid = text(nvml.nvmlDeviceGetUUID(handle))
    return Gpu(
        uuid=uuid,
        index=index,
        vendor="nvidia",
        model=text(nvml.nvmlDeviceGetName(handle)),
        memory_mib=int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // 2**20,
        numa=pci.numa(address, sysfs),
        bus=address,
        nodes=(f"/dev/nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}",),
        cdi=(f"{KIND}={uuid}", f"{KIND}={index}"),
        slot=f"gpu{index}",
        trouble=health(nvml, handle),
    )


def _mig(nvml: Nvml, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False  # a model without MIG
    return bool(current)


def _instances(nvml: Nvml, handle: Any, whole: Gpu, proc: Path) -> list[Gpu]:
    """With MIG on, only the instances can be used, so only they are given out."""
    found = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue  # places are numbered with gaps
        uuid = text(nvml.nvmlDeviceGetUUID(instance))
        ids = nvml.nvmlDeviceGetGpuInstanceId(instance), nvml.nvmlDeviceGetComputeInstanceId(instance)
        found.append(
            replace(
                whole,
                uuid=uuid,
                model=text(nvml.nvmlDeviceGetName(instance)),
                memory_mib=int(nvml.nvmlDeviceGetMemoryInfo(instance).total) // 2**20,
                nodes=(*whole.nodes, *_capabilities(proc, whole.nodes[0], *ids)),
                cdi=(f"{KIND}={uuid}", f"{KIND}={whole.index}:{number}"),
                slot=f"{whole.slot}-mig{number}",
                card=whole.uuid,
            )
        )
    return [replace(gpu, parts=len(found)) for gpu in found]


def _capabilities(proc: Path, node: str, gpu_instance: int, compute_instance: int) -> list[str]:
    """Two nodes tell the instances of one GPU apart; all share the GPU's own."""
    base = proc / f"driver/nvidia/capabilities/gpu{node.removeprefix('/dev/nvidia')}/mig/gi{gpu_instance}"
    nodes = []
    for access in (base / "access", base / f"ci{compute_instance}/access"):
        try:
            match = re.search(r"DeviceFileMinor: (\d+)", access.read_text())
        except OSError:
            match = None
        if match:
            nodes.append(f"/dev/nvidia-caps/nvidia-cap{match[1]}")
    return nodes


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
