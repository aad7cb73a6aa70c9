"""What the platform itself runs inside machines: sshd with its own libraries, the first process, `gpuaas-runtime`.

On a small read-only file system in memory, mounted into every machine: nobody in a machine can change these programs,
and they are not loaded from a tree that a tenant can write. The file system of the host's disk does not show.
"""

import os
from contextlib import suppress
from importlib import resources
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.images.closure import closure
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Attribute
from gpuaas.node.host.paths import Paths

INSIDE = "/run/gpuaas/tools"
RUNTIME = "gpuaas-runtime"  # a script for whoever has a shell there
INIT = ("init", "-P")  # waits for whatever is left behind by others, and for nothing else
_READ_ONLY = Attribute.READ_ONLY | Attribute.NOSUID | Attribute.NODEV
# Whoever may not read a program may not look into a process that runs it either, nor hold it up or write to its log,
# and that is everybody in a machine: what sshd says about who came is true (`supervisor.sessions`).
_UNREADABLE = 0o111
# Files of the tenant's that decide what is loaded into sshd, or run by it before anybody has shown a key.
_DECIDING = ("ld.so.preload", "ld.so.cache", "nsswitch.conf", "hosts.allow", "hosts.deny")
_INITS = ("/usr/bin/catatonit", "/usr/libexec/podman/catatonit", "/usr/libexec/catatonit/catatonit")


class Tools:
    def __init__(self, paths: Paths) -> None:
        self._place = paths.run / "tools"

    def ensure(self, tree: Path) -> Path:
        """Made from the programs in the image at `tree`, unless they are there. It appears when it is complete.

        Machines that run keep what an older agent has given them.
        """
        if mounts.at(self._place) is not None and not self._is_ours():
            self.clear()
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

    def _is_ours(self) -> bool:
        try:
            return (self._place / RUNTIME).read_bytes() == runtime_program()
        except FileNotFoundError:
            return False


def runtime_program() -> bytes:
    return resources.files("gpuaas.node.host.runtimes").joinpath(f"{RUNTIME}.sh").read_bytes()


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
        (place / name).write_bytes(_without_tenants_say(source.read_bytes()))
        (place / name).chmod(_UNREADABLE if name in ("init", "lib/loader") else 0o755)
    (place / RUNTIME).write_bytes(runtime_program())
    (place / RUNTIME).chmod(0o755)
    for directory in (place / "lib", place):
        directory.chmod(0o755)


def _without_tenants_say(program: bytes) -> bytes:
    """The program with paths of the same length in which nobody can make a file, in place of the deciding ones."""
    for name in _DECIDING:
        path = f"/etc/{name}\0".encode()
        program = program.replace(path, path.replace(b"/etc/", b"/proc/")[: len(path) - 1] + b"\0")
    return program
