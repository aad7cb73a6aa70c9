"""A mount namespace with only what the agent's tools need, however much is mounted on the host.

`runc` copies and walks every mount of the namespace that it starts from: 30 ms with few, 435 ms with 20,000.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.mounts import Mount, Propagation

# Programs and their configuration, when they have mounts of their own.
_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/var/lib")
_WHOLE = ("/dev", "/sys")  # with everything that is mounted below
_PROC = "/proc"


def become(run: Path, keep: Iterable[Path]) -> None:
    """Puts this process into such a namespace: nothing comes in from the host later, and nothing goes out."""
    with asking("leave", "the host's mount namespace"):
        kernel.unshare(kernel.CLONE_NEWNS)
    mounts.set_propagation(Path("/"), Propagation.PRIVATE, recursive=True)
    # Copied before the root is: it is put on top of the run directory, and would hide what is mounted below that.
    copies = list(_copies(needed(mounts.mounts(), [str(path) for path in (run, *keep)])))
    root = mounts.clone(Path("/"))
    # Any directory will do to stand on while the root is changed.
    mounts.attach(root, run)
    os.close(root)
    os.chdir(run)
    for target, fd in copies:
        mounts.attach(fd, Path(target.lstrip("/")))
        os.close(fd)
    with asking("change", "the root of a mount namespace"):
        kernel.pivot_root(".", ".")
        kernel.umount2(".", kernel.MNT_DETACH)
        os.chdir("/")


def _copies(targets: Iterable[str]) -> Iterator[tuple[str, int]]:
    for target in targets:
        # What another mount hides cannot be reached, here as on the host.
        with suppress(FileNotFoundError):
            os.stat(target)
            yield target, mounts.clone(Path(target))


def needed(table: Iterable[Mount], paths: Iterable[str]) -> list[str]:
    """The mount points, parents first, without which one of `paths` or a part of the system would be another place."""
    inside = [*_SYSTEM, *paths]
    found = {
        mount.target
        for mount in table
        if mount.target == _PROC
        or any(holds(whole, mount.target) for whole in _WHOLE)
        or any(holds(mount.target, path) for path in inside)
    }
    return sorted(found - {"/"}, key=lambda target: target.count("/"))


def holds(directory: str, path: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
