"""The display controllers that the kernel sees, whether a driver makes use of them or not. Reads sysfs only."""

import re
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")
VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_ADDRESS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")


@dataclass(frozen=True)
class Card:
    address: str
    vendor: str
    device: str  # the PCI id, like 0x2330
    driver: str  # the kernel module that has it, or ""
    numa: int
    render_node: str = ""
    hive: str = ""  # AMD GPUs with the same are linked by XGMI


def cards(sysfs: Path = SYSFS) -> list[Card]:
    found = []
    for directory in sorted((sysfs / "bus/pci/devices").glob("*")):
        vendor = VENDORS.get(_read(directory / "vendor"))
        if vendor is not None and _read(directory / "class")[:6] in _DISPLAY_CLASSES:
            found.append(_card(directory, vendor))
    return found


def address(bus_id: str) -> str:
    """NVML writes 00000000:17:00.0 for what the kernel calls 0000:17:00.0."""
    match = _ADDRESS.fullmatch(bus_id.strip("\0 ").lower())
    return match[1] if match else ""


def numa(address: str, sysfs: Path = SYSFS) -> int:
    return _numa(sysfs / "bus/pci/devices" / address) if address else 0


def _card(directory: Path, vendor: str) -> Card:
    driver = directory / "driver"
    render = sorted(directory.glob("drm/renderD*"))
    return Card(
        address=directory.name,
        vendor=vendor,
        device=_read(directory / "device"),
        driver=driver.resolve().name if driver.exists() else "",
        numa=_numa(directory),
        render_node=f"/dev/dri/{render[0].name}" if render else "",
        hive=_read(directory / "xgmi_hive_info/xgmi_hive_id"),
    )


def _numa(directory: Path) -> int:
    try:
        return max(0, int(_read(directory / "numa_node")))  # -1: the machine has no nodes
    except ValueError:
        return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
