"""Whether a started machine is what was asked for. Runtimes have silently left things out (V4, V5, T8).

Looks only at what the kernel says about the first process, from outside: nothing is opened inside the machine.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.cgroups.layout import Layout
from gpuaas.node.host.container import verify_mounts
from gpuaas.node.host.container.boot import Boot
from gpuaas.node.host.container.capabilities import MASK
from gpuaas.node.host.container.config import DEVICES
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE
from gpuaas.node.host.mounts.mounts import mounts

_SECCOMP_FILTER = 2
_NAME_LENGTH = 15  # of /proc/<pid>/comm
_EXEC_SECONDS = 5.0
_OWN = ("user", "net", "pid", "mnt", "ipc", "uts", "cgroup")
# What runtimes add by themselves. To make a node and to open tun takes capabilities that nobody inside has.
_ALWAYS = {"b *:* m", "c *:* m", "c 5:1 rwm", "c 10:200 rwm"}


def verify(pid: int, boot: Boot, layout: Layout) -> None:
    """`pid` is the machine's first process; the caller knows that it lives. Raises with all that is different."""
    with asking("verify", boot.id):
        found = [
            *_program(pid, boot),
            *_rights(pid, boot),
            *_maps(pid, boot),
            *_handles(pid),
            *_namespaces(pid, boot),
            *_cgroups(pid, boot, layout),
            *_devices(boot, layout),
            *verify_mounts.differences(boot, mounts(pid)),
        ]
    if found:
        raise HostError("verify", boot.id, "; ".join(found), transient=False)


def _program(pid: int, boot: Boot) -> list[str]:
    """Runtimes return a moment before the process becomes the program: until then it has files of theirs open."""
    wanted, deadline = os.path.basename(boot.init[0])[:_NAME_LENGTH], time.monotonic() + _EXEC_SECONDS
    while (name := Path(f"/proc/{pid}/comm").read_text().strip()) != wanted:
        if time.monotonic() > deadline:
            return [f"it runs {name}, not {wanted}"]
        time.sleep(0.001)
    return []


def _rights(pid: int, boot: Boot) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    held = [f"{MASK:016x}"]
    wanted = {
        "Uid": 4 * [str(boot.uid_base)],
        "Gid": 4 * [str(boot.uid_base)],
        "Groups": sorted(str(boot.uid_base + gid) for gid in boot.gpus.gids),
        "CapInh": ["0" * 16],
        "CapPrm": held,
        "CapEff": held,
        "CapBnd": held,
        "CapAmb": ["0" * 16],
        "NoNewPrivs": ["0"],
        "Seccomp": [str(_SECCOMP_FILTER)],
    }
    found = {name: status.get(name, []) for name in wanted}
    found["Groups"] = sorted(found["Groups"])
    if status.get("NSpid", [])[-1:] != ["1"]:
        return [f"process {pid} is not the first of a machine"]
    different = [name for name, value in wanted.items() if found[name] != value]
    return [f"{name} is {' '.join(found[name])}, not {' '.join(wanted[name])}" for name in different]


def _maps(pid: int, boot: Boot) -> list[str]:
    wanted = ["0", str(boot.uid_base), str(IDS_PER_RANGE)]
    found = {name: Path(f"/proc/{pid}/{name}").read_text().split() for name in ("uid_map", "gid_map")}
    return [f"{name} is {' '.join(value)}, not {' '.join(wanted)}" for name, value in found.items() if value != wanted]


def _handles(pid: int) -> list[str]:
    """What it has open, the tenant can open too, through /proc: no file or directory of the host's (T6)."""
    directory = Path(f"/proc/{pid}/fd")
    found = []
    for name in os.listdir(directory):
        with suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(directory / name)
            if target.startswith("/") and target != os.devnull:
                found.append(f"it has {target} open")
    root, here = (os.stat(f"/proc/{pid}/{name}") for name in ("root", "cwd"))
    if (root.st_dev, root.st_ino) != (here.st_dev, here.st_ino):
        found.append("it is not in its root directory")
    return found


def _namespaces(pid: int, boot: Boot) -> list[str]:
    def identity(path: str) -> tuple[int, int]:
        info = os.stat(path)
        return info.st_dev, info.st_ino

    shared = [name for name in _OWN if identity(f"/proc/{pid}/ns/{name}") == identity(f"/proc/self/ns/{name}")]
    given = {"user": boot.user_namespace, "net": boot.network_namespace}
    other = [name for name, path in given.items() if identity(f"/proc/{pid}/ns/{name}") != identity(path)]
    return [f"its {name} namespace is the host's" for name in shared] + [
        f"its {name} namespace is not the one that was made for it" for name in other
    ]


def _cgroups(pid: int, boot: Boot, layout: Layout) -> list[str]:
    """One line per hierarchy: `4:memory:/gpuaas/al-abc`, or `0::` for v2. Unmounted ones limit nothing."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        ours = any(name in layout.v1 for name in controllers.split(",")) if controllers else layout.v2 is not None
        if ours and path != boot.cgroup:
            found.append(f"its cgroup of {controllers or 'v2'} is {path}, not {boot.cgroup}")
    return found


def _devices(boot: Boot, layout: Layout) -> list[str]:
    place = layout.v1.get("devices")
    if place is None:
        return _device_program(boot, layout)
    present = set((place / boot.cgroup.lstrip("/") / "devices.list").read_text().splitlines())
    gpus = {f"{rule['type']} {rule['major']}:{rule['minor']} {rule['access']}" for rule in boot.gpus.rules}
    numbers = [f"{major}:{'*' if minor is None else minor}" for major, minor in DEVICES]
    allowed = {f"c {number} {access}" for number in numbers for access in ("rw", "rwm")} | _ALWAYS | gpus
    return [f"it may use the device {rule}" for rule in sorted(present - allowed)] + [
        f"it may not use the device {rule}" for rule in sorted(gpus - present)
    ]


def _device_program(boot: Boot, layout: Layout) -> list[str]:
    if layout.v2 is None:
        return ["nothing decides which devices it may use"]
    fd = os.open(layout.v2 / boot.cgroup.lstrip("/"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        attached = kernel.device_programs(fd)
    finally:
        os.close(fd)
    return [] if attached else ["nothing decides which devices it may use"]
