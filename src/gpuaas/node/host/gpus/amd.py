"""AMD GPUs, as AMD's management library (amdsmi, part of ROCm) tells of them."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from gpuaas.node.host.gpus import links, pci
from gpuaas.node.host.gpus.gpu import Found, Gpu, Unusable

KIND = "amd.com/gpu"
_ROCM_VERSION = Path("/opt/rocm/.info/version")


class Unavailable(Exception):
    """The library is not there, or does not answer."""


class AmdSmi(Protocol):
    """The part of the module `amdsmi` that we use. Handles are opaque."""

    AmdSmiException: type[Exception]

    def amdsmi_init(self) -> Any: ...
    def amdsmi_get_processor_handles(self) -> list[Any]: ...
    def amdsmi_get_gpu_device_uuid(self, handle: Any) -> str: ...
    def amdsmi_get_gpu_device_bdf(self, handle: Any) -> str: ...
    def amdsmi_get_gpu_asic_info(self, handle: Any) -> dict[str, Any]: ...
    def amdsmi_get_gpu_vram_info(self, handle: Any) -> dict[str, Any]: ...
    def amdsmi_get_gpu_driver_info(self, handle: Any) -> dict[str, Any]: ...
    def amdsmi_get_gpu_total_ecc_count(self, handle: Any) -> dict[str, Any]: ...


def load() -> AmdSmi:
    try:
        module = cast(AmdSmi, importlib.import_module("amdsmi"))
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # it loads its library when imported
        raise Unavailable("amdsmi is not installed (it comes with ROCm)") from error
    try:
        module.amdsmi_init()
    except (module.AmdSmiException, OSError) as error:
        raise Unavailable(f"amdsmi does not answer: {error}") from error
    return module


def read(amdsmi: AmdSmi, sysfs: Path = pci.SYSFS, rocm_version: Path = _ROCM_VERSION) -> Found:
    try:
        handles = amdsmi.amdsmi_get_processor_handles()
    except amdsmi.AmdSmiException as error:
        raise Unavailable(f"amdsmi does not answer: {error}") from error
    cards = {card.address: card for card in pci.cards(sysfs)}
    toolkit = rocm_version.read_text().strip().split("-")[0] if rocm_version.exists() else ""
    found = Found()
    for index, handle in enumerate(handles):
        address = ""
        try:
            address = pci.address(amdsmi.amdsmi_get_gpu_device_bdf(handle))
            found.gpus.append(_gpu(amdsmi, handle, index, cards.get(address), address, toolkit))
        except amdsmi.AmdSmiException as error:
            found.unusable.append(Unusable(address or f"amd GPU {index}", f"it does not answer: {error}"))
    there = [gpu.bus for gpu in found.gpus if gpu.bus]
    hives = {address: {f"hive {card.hive}"} for address, card in cards.items() if card.hive}
    linked = links.groups(hives, there)
    return Found([replace(gpu, link_group=linked.get(gpu.bus)) for gpu in found.gpus], found.unusable)


def health(amdsmi: AmdSmi, handle: Any) -> str:
    try:
        errors = amdsmi.amdsmi_get_gpu_total_ecc_count(handle).get("uncorrectable_count", 0)
    except amdsmi.AmdSmiException:
        return ""  # a model that does not count
    return f"{errors} uncorrected memory errors since the driver was loaded" if errors else ""


def _gpu(amdsmi: AmdSmi, handle: Any, index: int, card: pci.Card | None, address: str, toolkit: str) -> Gpu:
    uuid = amdsmi.amdsmi_get_gpu_device_uuid(handle)
    return Gpu(
        uuid=f"GPU-{uuid}",
        index=index,
        vendor="amd",
        model=str(amdsmi.amdsmi_get_gpu_asic_info(handle).get("market_name") or "AMD GPU"),
        memory_mib=int(amdsmi.amdsmi_get_gpu_vram_info(handle).get("vram_size") or 0),
        driver=str(amdsmi.amdsmi_get_gpu_driver_info(handle).get("driver_version") or ""),
        toolkit=toolkit,
        numa=card.numa if card else 0,
        bus=address,
        nodes=(card.render_node,) if card and card.render_node else (),
        cdi=(f"{KIND}={uuid}", f"{KIND}={index}"),
        slot=f"gpu{index}",
        trouble=health(amdsmi, handle),
    )
