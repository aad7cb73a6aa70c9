"""What the platform itself runs inside machines: sshd with its own libraries, and the first process.

On a small read-only file system in memory, mounted into every machine: nobody in a machine can change these programs,
and they are not loaded from a tree that a tenant can write. The file system of the host's disk does not show.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.images.closure import closure
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute
from gpuaas.node.host.paths import Paths

INSIDE = "/run/gpuaas/tools"
INIT = ("init", "-P")  # waits for whatever is left behind by others, and for nothing else
_READ_ONLY = Attribute.READ_ONLY | Attribute.NOSUID | Attribute.NODEV
_INITS = ("/usr/bin/catatonit", "/usr/libexec/podman/catatonit", "/usr/libexec/catatonit/catatonit")


class Tools:
    def __init__(self, paths: Paths) -> None:
        self._place = paths.run / "tools"

    def ensure(self, tree: Path) -> Path:
        """Made from the programs in the image at `tree`, unless they are there. It appears when it is complete."""
        if mounts.at(self._place) is None:
            with asking("make the directory", self._place):
                self._place.mkdir(mode=0o755, parents=True, exist_ok=True)
            options: dict[str, str | None] = {"source": "tools", "mode": "0755", "size": "64m"}
            fd = mounts.filesystem("tmpfs", options, Attribute.NOSUID | Attribute.NODEV)
            try:
                with asking("copy", "the platform's programs"):
                    _fill(Path(f"/proc/self/fd/{fd}"), tree)
                mounts.set_attributes(fd, _READ_ONLY)
                mounts.attach(fd, self._place)
            finally:
                os.close(fd)
        return self._place

    def clear(self) -> None:
        while mounts.unmount(self._place, lazy=True):
            pass
        with suppress(FileNotFoundError):
            self._place.rmdir()


def sshd(config: str) -> list[str]:
    """The command of a session: the program, then its arguments. Its loader and its libraries are ours as well."""
    loader, library = f"{INSIDE}/lib/loader", f"{INSIDE}/lib"
    return [loader, "sshd", "--library-path", library, f"{INSIDE}/sshd", "-i", "-e", "-f", config]


def init_program() -> str | None:
    """Debian's package catatonit, podman's, or another distribution's: one static file."""
    return next((path for path in _INITS if os.access(path, os.X_OK)), None)


def _fill(place: Path, tree: Path) -> None:
    first = init_program()
    if first is None:
        raise HostError("find", "catatonit", "it is not installed: apt-get install catatonit", transient=False)
    loader, libraries = closure(tree, "usr/sbin/sshd")
    (place / "lib").mkdir()
    copies = {"init": Path(first), "sshd": tree / "usr/sbin/sshd", "lib/loader": loader}
    copies |= {f"lib/{name}": path for name, path in libraries.items()}
    for name, source in copies.items():
        shutil.copyfile(source, place / name)
        (place / name).chmod(0o755)
    for directory in (place / "lib", place):
        directory.chmod(0o755)
