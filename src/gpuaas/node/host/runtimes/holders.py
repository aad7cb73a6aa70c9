"""Who has an image mounted: read from the mounts of every namespace there is, those that are only pinned too."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Mount
from gpuaas.node.host.mounts.namespaces import Namespaces


def devices(namespaces: Namespaces, shared: Path) -> set[str]:
    """Of every EROFS that is mounted anywhere but below `shared`, where each image has its one mount."""
    prefix = f"{shared}/"
    return {
        each.device
        for table in _tables(namespaces)
        for each in table
        if each.filesystem == "erofs" and not each.target.startswith(prefix)
    }


def _tables(namespaces: Namespaces) -> Iterator[list[Mount]]:
    for id in namespaces.ids():
        if namespaces.pinned(id):
            yield namespaces.mounts(id)
    seen: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, HostError):  # it has ended meanwhile
                namespace = os.stat(f"/proc/{name}/ns/mnt").st_ino
                if namespace not in seen:
                    yield mounts.mounts(int(name))
                    seen.add(namespace)
