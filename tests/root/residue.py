"""What a node has of machines when it should have none: everything that could be left, asked of the host itself."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from gpuaas.node.host.cgroups import cgroup, layout
from gpuaas.node.host.gpus import simulated
from gpuaas.node.host.linux import LinuxConfig
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE
from gpuaas.node.host.network import links
from gpuaas.node.host.network.table import Table
from gpuaas.wire.node import AllocationBody

SETTLE_SECONDS = 3.0


def residue(config: LinuxConfig, body: AllocationBody, helper: int, reap: Callable[[], None]) -> list[str]:
    """Waits a little for what the kernel, or somebody who is dying, does late."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while left := list(_look(config, body, helper)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
        reap()
    return left


def _look(config: LinuxConfig, body: AllocationBody, helper: int) -> Iterator[str]:
    paths = config.paths
    for directory in ("allocations", "runtime", "namespaces", "networks"):
        yield from _files(paths.run / directory)
    for directory in ("allocations", "devices", "host-keys"):
        yield from (
            file for file in _files(paths.state / directory) if not Path(file).name.startswith(("blank-", "spare-"))
        )
    yield from (f"cgroup {name}" for name in cgroup.present(layout.detect(), config.prefix))
    yield from (f"link {name}" for name in links.named(config.interfaces))
    table = Table(config.prefix, config.interfaces, IPv4Network(config.pool), [])
    yield from (f"nft {member}" for member in table.members())
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if file.read_text().startswith(f"{paths.state}/"):
                yield f"loop device {file}"
    known = {str(paths.run / name) for name in ("tools", "namespaces", "networks")}
    # Images of runtimes stay mounted, and what simulated GPUs have, each once.
    stays = (f"{paths.run}/images", *map(str, simulated.given(paths.state / "simulated-gpus")))
    once: set[str] = set()
    for mount in mounts.mounts():
        if mount.target.startswith(stays) and mount.target not in once:
            once.add(mount.target)
        elif mount.target.startswith((f"{paths.run}/", f"{paths.state}/")) and mount.target not in known:
            yield f"mount {mount.target}"
    yield from _processes(config, body, helper)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", body.ssh_port))
        except OSError:
            yield f"port {body.ssh_port}"


def _files(directory: Path) -> list[str]:
    return [str(each) for each in directory.iterdir()] if directory.is_dir() else []


def _processes(config: LinuxConfig, body: AllocationBody, helper: int) -> Iterator[str]:
    """With an id of the range, or with a path of this node in their command line; but for the agent's own helper."""
    ids = range(body.uid_base, body.uid_base + IDS_PER_RANGE)
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != helper:
            with suppress(OSError):
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                status = Path(f"/proc/{name}/status").read_text()
                uids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
                ours = f"{config.paths.run}\0".encode() in command or f"{config.paths.run}/".encode() in command
                if (ours or any(int(uid) in ids for uid in uids)) and "\nState:\tZ" not in status:
                    yield f"process {name} {command.decode(errors='replace')}"
