"""Which GPUs are linked directly, by NVLink or XGMI: data between them does not cross the PCI bus.

NVLink goes from GPU to GPU (bridges) or to switches that several GPUs share. XGMI makes a hive; the kernel has its id.
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from gpuaas.node.host.gpus import pci

_MAX_LINKS = 18  # NVML_NVLINK_MAX_LINKS
_UP = 1  # NVML_FEATURE_ENABLED
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_NOWHERE = "0000:00:00.0"
_SOME_SWITCH = "a switch"


def of_nvidia(nvml: Any, handle: Any) -> set[str]:
    """The bus addresses at the other ends of this GPU's links: of GPUs, or of switches."""
    ends: set[str] = set()
    for link in range(_MAX_LINKS):
        with suppress(nvml.NVMLError):  # it has no such link, or it is of a model without any
            if nvml.nvmlDeviceGetNvLinkState(handle, link) == _UP:
                ends |= _other_end(nvml, handle, link)
    return ends


def _other_end(nvml: Any, handle: Any, link: int) -> set[str]:
    told = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
    address = pci.address(told.decode(errors="replace") if isinstance(told, bytes) else told)
    if address and address != _NOWHERE:
        return {address}
    # A switch outside of this machine has no address here: all that reach one, reach each other.
    return {_SOME_SWITCH} if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == _SWITCH else set()


def groups(ends: Mapping[str, Set[str]], order: Sequence[str]) -> dict[str, int]:
    """By bus address of a GPU: the number of its group. Who is linked to no other GPU has none."""
    of: dict[str, set[str]] = {}
    for address in order:
        reached = {address, *ends.get(address, ())}
        for other in list(reached):
            reached |= of.get(other, set())
        of.update(dict.fromkeys(reached, reached))
    numbers: dict[str, int] = {}
    for address in order:
        members = [other for other in order if other in of[address]]
        if len(members) > 1 and address not in numbers:
            numbers.update(dict.fromkeys(members, len(set(numbers.values()))))
    return numbers
