"""GPU libraries that answer from a recording: what a real machine said, without the machine. Used by tests."""
# ruff: noqa: N802 (the names are NVIDIA's)

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class RecordedError(Exception):
    """What the library raises for what the recording does not hold."""


@dataclass
class RecordedGpu:
    uuid: str
    name: str
    memory_bytes: int
    bus: str = ""
    minor: int = 0
    mig: list["RecordedGpu | None"] | None = None  # None: a model without MIG; inside: a place without an instance
    gpu_instance: int = 0
    compute_instance: int = 0
    ecc_errors: int | None = None  # None: a model that does not count
    remapped: tuple[int, int, int, int] | None = None  # corrected, uncorrected, pending, failed
    lost: bool = False
    links: tuple[
        tuple[str, int], ...
    ] = ()  # bus id and kind (0: GPU, 2: switch) of each other end; "": that link is down


@dataclass
class RecordedNvml:
    """Has the shape of the module pynvml."""

    gpus: list[RecordedGpu]
    driver: str = "550.90.07"
    cuda: int = 12040
    xids: list[tuple[RecordedGpu, int]] = field(default_factory=list)
    tells_events: bool = True
    NVMLError: type[Exception] = RecordedError

    def nvmlInit(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> RecordedGpu:
        if self.gpus[index].lost:
            raise RecordedError("GPU is lost")
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: RecordedGpu) -> bytes:
        if handle.lost:
            raise RecordedError("GPU is lost")
        return handle.uuid.encode()

    def nvmlDeviceGetName(self, handle: RecordedGpu) -> bytes:
        return handle.name.encode()  # older versions of the package answer in bytes

    def nvmlDeviceGetMemoryInfo(self, handle: RecordedGpu) -> Any:
        return SimpleNamespace(total=handle.memory_bytes)

    def nvmlDeviceGetMinorNumber(self, handle: RecordedGpu) -> int:
        return handle.minor

    def nvmlDeviceGetPciInfo(self, handle: RecordedGpu) -> Any:
        return SimpleNamespace(busId=handle.bus)

    def nvmlDeviceGetMigMode(self, handle: RecordedGpu) -> list[int]:
        if handle.mig is None:
            raise RecordedError("Not Supported")
        return [int(bool(handle.mig)), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: RecordedGpu) -> int:
        return len(handle.mig or [])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: RecordedGpu, index: int) -> RecordedGpu:
        instance = (handle.mig or [])[index]
        if instance is None:
            raise RecordedError("Not Found")
        return instance

    def nvmlDeviceGetGpuInstanceId(self, handle: RecordedGpu) -> int:
        return handle.gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, handle: RecordedGpu) -> int:
        return handle.compute_instance

    def nvmlDeviceGetTotalEccErrors(self, handle: RecordedGpu, kind: int, counter: int) -> int:
        if handle.ecc_errors is None:
            raise RecordedError("Not Supported")
        return handle.ecc_errors

    def nvmlDeviceGetRemappedRows(self, handle: RecordedGpu) -> tuple[int, int, int, int]:
        if handle.remapped is None:
            raise RecordedError("Not Supported")
        return handle.remapped

    def nvmlDeviceGetNvLinkState(self, handle: RecordedGpu, link: int) -> int:
        return int(bool(self._link(handle, link)[0]))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: RecordedGpu, link: int) -> Any:
        return SimpleNamespace(busId=self._link(handle, link)[0].encode())

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: RecordedGpu, link: int) -> int:
        return self._link(handle, link)[1]

    def _link(self, handle: RecordedGpu, link: int) -> tuple[str, int]:
        if link >= len(handle.links):
            raise RecordedError("Invalid Argument")
        return handle.links[link]

    def nvmlEventSetCreate(self) -> list[RecordedGpu]:
        if not self.tells_events:
            raise RecordedError("Insufficient Permissions")
        return []

    def nvmlDeviceRegisterEvents(self, handle: RecordedGpu, kinds: int, events: list[RecordedGpu]) -> None:
        events.append(handle)

    def nvmlEventSetWait_v2(self, events: list[RecordedGpu], timeout_milliseconds: int) -> Any:
        if not self.xids or self.xids[0][0] not in events:
            raise RecordedError("Timeout")
        gpu, xid = self.xids.pop(0)
        return SimpleNamespace(device=gpu, eventData=xid)


@dataclass
class RecordedAmdSmi:
    """Has the shape of the module amdsmi. Each GPU is what the library's calls answer for it."""

    gpus: list[dict[str, Any]]
    AmdSmiException: type[Exception] = RecordedError
    AmdSmiTemperatureType: Any = field(
        default_factory=lambda: SimpleNamespace(EDGE="the edge", JUNCTION="the junction")
    )
    AmdSmiTemperatureMetric: Any = field(default_factory=lambda: SimpleNamespace(CURRENT="current"))

    def amdsmi_init(self) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[dict[str, Any]]:
        return self.gpus

    def amdsmi_get_processor_handle_from_bdf(self, bdf: str) -> dict[str, Any]:
        for gpu in self.gpus:
            if gpu.get("bdf") == bdf:
                return gpu
        raise RecordedError("AMDSMI_STATUS_NOT_FOUND")

    def amdsmi_get_gpu_activity(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "activity"))

    def amdsmi_get_gpu_vram_usage(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "vram_usage"))

    def amdsmi_get_power_info(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "power"))

    def amdsmi_get_temp_metric(self, handle: dict[str, Any], sensor: str, metric: str) -> Any:
        return self._of(handle, f"{metric} at {sensor}")

    def amdsmi_get_gpu_device_uuid(self, handle: dict[str, Any]) -> str:
        return str(self._of(handle, "uuid"))

    def amdsmi_get_gpu_device_bdf(self, handle: dict[str, Any]) -> str:
        return str(self._of(handle, "bdf"))

    def amdsmi_get_gpu_asic_info(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "asic"))

    def amdsmi_get_gpu_vram_info(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "vram"))

    def amdsmi_get_gpu_driver_info(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "driver"))

    def amdsmi_get_gpu_total_ecc_count(self, handle: dict[str, Any]) -> dict[str, Any]:
        return dict(self._of(handle, "ecc"))

    def _of(self, handle: dict[str, Any], what: str) -> Any:
        if what not in handle:
            raise RecordedError("AMDSMI_STATUS_NOT_SUPPORTED")
        return handle[what]
