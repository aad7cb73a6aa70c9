"""Critical errors (XID) that NVIDIA's driver reports as they happen. Counters of errors are in `nvml.health`."""
# ruff: noqa: N802 (the names are NVIDIA's)

from contextlib import suppress
from typing import Any, Protocol

from gpuaas.node.host.gpus.nvml import Unavailable, text

_XID_CRITICAL = 0x8  # nvmlEventTypeXidCriticalError
# The tenant's own program failed, not the GPU: the same list as the Kubernetes device plugin's.
_OF_THE_APPLICATION = {13, 31, 43, 45, 68, 109}


class NvmlEvents(Protocol):
    NVMLError: type[Exception]

    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlEventSetCreate(self) -> Any: ...
    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, events: Any) -> Any: ...
    def nvmlEventSetWait_v2(self, events: Any, timeout_milliseconds: int) -> Any: ...


class Xids:
    """Remembers, for each whole GPU, its last critical error, until it is reset. Those of MIG instances are its own."""

    def __init__(self, nvml: NvmlEvents) -> None:
        self._nvml = nvml
        self._troubles: dict[str, str] = {}
        try:
            self._events, count = nvml.nvmlEventSetCreate(), nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise Unavailable(f"NVML tells of no events: {error}") from error
        for index in range(count):
            try:
                nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(index), _XID_CRITICAL, self._events)
            except nvml.NVMLError:
                continue  # too old a model, or lost: `nvml.read` names it

    def poll(self) -> dict[str, str]:
        """GPU UUID: why it must not be given out. Takes what has happened and does not wait."""
        for _ in range(1000):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError:
                break  # a timeout: there is nothing more
            if event.eventData in _OF_THE_APPLICATION:
                continue
            with suppress(self._nvml.NVMLError):  # lost: `nvml.read` names it
                uuid = text(self._nvml.nvmlDeviceGetUUID(event.device))
                self._troubles[uuid] = f"the driver reported the critical error XID {event.eventData}"
        return dict(self._troubles)

    def forget(self, uuid: str) -> None:
        """After a reset: also what happened before it and nobody has asked for yet."""
        self.poll()
        self._troubles.pop(uuid, None)
