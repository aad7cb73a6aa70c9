"""The run directory, in memory also where /run is not: nothing in it may outlive a reboot, and every machine makes
some thirty small files there, which a disk's file system takes longer to make than the machine's network.
"""

import os
from contextlib import suppress
from pathlib import Path

from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute, Mount, Propagation
from gpuaas.node.host.mounts.small import holds

_SOURCE = "gpuaas-run"
_IN_MEMORY = ("tmpfs", "ramfs")
_SIZE = "256m"  # a machine takes some 30 KB


def ensure(run: Path) -> None:
    """Before anything is made there. Where machines of an older agent live on a disk, it stays there until they end."""
    with asking("make the directory", run):
        run.mkdir(mode=0o711, parents=True, exist_ok=True)
    table = mounts.mounts()
    below = [each for each in table if each.target != str(run) and holds(str(run), each.target)]
    if below or _holder(run, table).filesystem in _IN_MEMORY:
        return
    options: dict[str, str | None] = {"source": _SOURCE, "mode": "0711", "size": _SIZE}
    fd = mounts.filesystem("tmpfs", options, Attribute.NOSUID | Attribute.NODEV)
    try:
        mounts.attach(fd, run)
    finally:
        os.close(fd)
    mounts.set_propagation(run, Propagation.PRIVATE)


def clear(run: Path) -> None:
    """With nothing of ours in it any more. One that the operator has mounted stays."""
    present = mounts.at(run)
    if present is not None and present.source == _SOURCE:
        mounts.unmount(run, lazy=True)
    with suppress(OSError):
        run.rmdir()


def _holder(path: Path, table: list[Mount]) -> Mount:
    """The mount that it is on: of the nearest mount point, what was mounted last."""
    holders = [each for each in table if holds(each.target, str(path))]
    return max(reversed(holders), key=lambda each: len(each.target))
