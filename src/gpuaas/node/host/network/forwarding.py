"""Whether this host passes packets on. Switched on for machines, and set back by the last who needs it."""

from pathlib import Path

from gpuaas.node.host.boot import boot_id
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.kernel import asking

_SWITCH = Path("/proc/sys/net/ipv4/ip_forward")
_RECORD = "ip_forward"


def switch_on(directory: Path) -> None:
    """Writes down first what it was, once per boot: a boot sets it to what the operator wants."""
    disk = FileDisk(directory)
    try:
        with asking("switch on", "forwarding (net.ipv4.ip_forward)"):
            if _before(disk) is None:
                disk.write(_RECORD, f"{boot_id()} {_SWITCH.read_text().strip()}".encode())
            # Writing it resets the settings of every interface, so not without a reason.
            if _SWITCH.read_text().strip() != "1":
                _SWITCH.write_text("1")
    finally:
        disk.close()


def set_back(directory: Path) -> None:
    disk = FileDisk(directory)
    try:
        with asking("set back", "forwarding (net.ipv4.ip_forward)"):
            before = _before(disk)
            if before is not None and before != _SWITCH.read_text().strip():
                _SWITCH.write_text(before)
        disk.remove(_RECORD)
    finally:
        disk.close()


def _before(disk: FileDisk) -> str | None:
    boot, _, value = (disk.read(_RECORD) or b"").decode().partition(" ")
    return value if boot == boot_id() else None
