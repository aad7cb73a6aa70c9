"""Which boot of the real machine this is."""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return _BOOT_ID.read_text().strip()
