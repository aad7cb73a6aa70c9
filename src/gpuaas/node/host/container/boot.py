"""One start of a machine, as its container needs to know it; refused if any part of it could be read as another."""

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import is_id
from gpuaas.node.host.gpus.cdi_edits import OciEdits

_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.IGNORECASE)
_CGROUP = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9_-]{0,63}){1,4}")
_NAMESPACE = re.compile(r"(/[A-Za-z0-9._-]+)+")
_KERNEL = ("/proc", "/sys", "/dev")  # only the runtime mounts there
_FIRST_UID = 65536
_MOST_UID = (1 << 32) - 2


@dataclass(frozen=True)
class ReadOnlyBind:
    """Something of the platform's: a path in the machine's pinned mount namespace, and where it is inside."""

    source: str
    target: str


@dataclass(frozen=True)
class View:
    """A directory of the platform's in which mounts come and go while the machine runs."""

    source: str
    target: str
    read_only: bool = False  # and so is all that will be mounted there


@dataclass(frozen=True)
class Boot:
    id: str
    hostname: str
    rootfs: Path  # as seen in the pinned mount namespace
    uid_base: int
    user_namespace: str  # paths, like /proc/<pid>/fd/<n>
    network_namespace: str
    cgroup: str  # below each hierarchy, like /gpuaas/al-abc; it has its limits already
    init: tuple[str, ...]
    shm_bytes: int
    binds: tuple[ReadOnlyBind, ...] = ()
    views: tuple[View, ...] = ()
    gpus: OciEdits = field(default_factory=lambda: OciEdits([], [], [], [], {}, []))


def check(boot: Boot) -> None:
    """What a runtime or a reader of config.json could misunderstand is refused, wherever it came from."""
    places: list[ReadOnlyBind | View] = [*boot.binds, *boot.views]
    problems = {
        "id": not is_id(boot.id, boot.id[:2]),
        "hostname": _HOSTNAME.fullmatch(boot.hostname) is None,
        "rootfs": not _is_plain(str(boot.rootfs)),
        "uid_base": not _FIRST_UID <= boot.uid_base <= _MOST_UID - _FIRST_UID,
        "user_namespace": _NAMESPACE.fullmatch(boot.user_namespace) is None,
        "network_namespace": _NAMESPACE.fullmatch(boot.network_namespace) is None,
        "cgroup": _CGROUP.fullmatch(boot.cgroup) is None,
        "init": not boot.init or not _is_plain(boot.init[0]),
        "shm_bytes": boot.shm_bytes <= 0,
        "binds": not all(_is_plain(each.source) and _is_target(each.target) for each in places),
    }
    wrong = [name for name, is_wrong in problems.items() if is_wrong]
    if wrong:
        raise HostError("start", repr(boot.id), f"not a value for {', '.join(wrong)}", transient=False)


def check_text(value: Any, place: str = "config") -> None:
    """No control character, nor anything else that is not seen, in any string (T17)."""
    if isinstance(value, dict):
        for key, each in value.items():
            check_text(key, place)
            check_text(each, f"{place}.{key}")
    elif isinstance(value, list):
        for each in value:
            check_text(each, place)
    elif isinstance(value, str) and not value.isprintable():
        raise HostError("start with", f"{place} {value!r}", "it has characters that cannot be seen", transient=False)


def _is_plain(path: str) -> bool:
    pure = PurePosixPath(path)
    # Two slashes at the beginning are kept, as POSIX says, and are one to the kernel: `//proc` is /proc.
    return path.startswith("/") and not path.startswith("//") and str(pure) == path and ".." not in pure.parts


def _is_target(path: str) -> bool:
    return _is_plain(path) and path != "/" and not any(f"{path}/".startswith(f"{each}/") for each in _KERNEL)
