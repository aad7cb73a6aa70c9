"""The descriptor of an allocation's runtimes, for its shells and for whoever looks at the node: `write_env_file`.

    /etc/gpuaas/runtime/allocations/<id>.env    on the node; there as long as the allocation has runtimes
    <run>/allocations/<id>/descriptor/          mounted read-only inside, as /etc/gpuaas:
        runtime.env
        runtime/allocations/<id>.env            a link to it

A directory is mounted and not the file: a renamed file would never reach a mount of the file. The platform never
writes into a tree that a tenant can write.
"""

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import is_id
from gpuaas.node.host import safepath
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.paths import Paths
from gpuaas.wire.node import RuntimeSpec

INSIDE = "/etc/gpuaas"
DIRECTORY = "descriptor"
ROOT = "/opt/gpuaas/runtimes"
_FILE, _SUFFIX = "runtime.env", ".env"
# The only characters that a value can have: none of them means anything to a shell between single quotes.
_SAFE = re.compile(r"[A-Za-z0-9 /:.+_-]*")


class Descriptors:
    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        _own(paths.descriptors)
        self._files = FileDisk(paths.descriptors, sync=False)  # after a power cut it is written anew, from the spec
        if paths.descriptors_before != paths.descriptors and paths.descriptors_before.is_dir():
            self._take_over(paths.descriptors_before)

    def write_env_file(self, id: str, current: Iterable[RuntimeSpec]) -> None:
        """The bounded action `runtime.write_env_file`: this one file of this one allocation, and nothing else."""
        data = text(id, current).encode()
        if self._files.read(id + _SUFFIX) != data:
            self._files.write(id + _SUFFIX, data)
        self._show(id, data)

    def prepare(self, id: str) -> Path:
        """What a starting machine gets; says the same as before the start."""
        data = self._files.read(id + _SUFFIX)
        return self._show(id, text(id, []).encode() if data is None else data)

    def remove(self, id: str) -> None:
        self._files.remove(id + _SUFFIX)
        if (self._paths.live(id) / DIRECTORY).is_dir():
            self._show(id, text(id, []).encode())

    def close(self, id: str) -> None:
        """The machine is gone, or has gone down with its node."""
        live = self._paths.live(id)
        if live.is_dir():
            safepath.remove_tree(live, DIRECTORY)

    def ids(self) -> set[str]:
        names = {name.removesuffix(_SUFFIX) for name in self._files.names() if name.endswith(_SUFFIX)}
        return {name for name in names if is_id(name, name[:2])}

    def _take_over(self, before: Path) -> None:
        """Nothing stays behind that nobody would keep true; what is written here already is newer."""
        files = FileDisk(before, sync=False)
        for name in files.names():
            data = files.read(name)
            if data is not None and self._files.read(name) is None:
                self._files.write(name, data)
            files.remove(name)
        files.close()
        with suppress(OSError):  # somebody else's things are in it
            before.rmdir()
            before.parent.rmdir()

    def _show(self, id: str, data: bytes) -> Path:
        directory = self._paths.live(id) / DIRECTORY
        with asking("write", f"the descriptor of {id}"), suppress(FileNotFoundError):
            if (directory / _FILE).read_bytes() != data:
                _replace(directory, data)
            return directory  # the file comes last: what is around it is there
        self._paths.make_live(id)
        with asking("write", f"the descriptor of {id}"):
            for each in (directory, directory / "runtime", directory / "runtime/allocations"):
                each.mkdir(mode=0o755, exist_ok=True)
                each.chmod(0o755)
            with suppress(FileExistsError):
                (directory / "runtime/allocations" / f"{id}{_SUFFIX}").symlink_to(f"../../{_FILE}")
            _replace(directory, data)
        return directory


def text(id: str, current: Iterable[RuntimeSpec]) -> str:
    """Lines that every shell reads the same, and that other programs can take apart at the first `=`."""
    rows = sorted(current, key=lambda each: each.bundle)
    values = {"GPUAAS_ALLOCATION_ID": id, "GPUAAS_RUNTIMES": " ".join(each.bundle for each in rows)}
    for each in rows:
        name, root = f"GPUAAS_RUNTIME_{each.bundle.replace('-', '_').upper()}", f"{ROOT}/{each.bundle}/{each.version}"
        values |= {
            f"{name}_VERSION": each.version,
            f"{name}_ROOT": root,
            f"{name}_DIGEST": f"sha256:{each.digest}",
            f"{name}_ACTIVATE": f"{root}/activate.sh",
            f"{name}_APPLIED_AT": _time(each.applied_at),
        }
    for name, value in values.items():
        if _SAFE.fullmatch(value) is None:
            raise HostError("write", f"the descriptor of {id}", f"{name} is not plain: {value!r}", transient=False)
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def _own(directory: Path) -> None:
    """Makes it in a place such as /etc/gpuaas, or refuses one in which somebody else could put a link or a file."""
    if wrong := open_to_others(directory):
        raise _unusable(wrong, "it must be a real directory of root's that nobody else can write")
    for each in (directory.parents[1], directory.parent, directory):
        try:
            with suppress(FileExistsError):
                each.mkdir(parents=True)
                each.chmod(0o755)  # whatever the agent was started with
        except OSError as error:
            raise _unusable(each, error.strerror or str(error)) from error


def open_to_others(directory: Path) -> Path | None:
    """The part of the way to it, from a place such as /etc/gpuaas on, that is not ours alone."""
    for each in (directory.parents[1], directory.parent, directory):
        with suppress(FileNotFoundError):
            found = each.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
                return each
    return None


def _unusable(directory: Path, cause: str) -> HostError:
    return HostError("write into", str(directory), f"{cause}; --etc-dir names another place", transient=False)


def forget(paths: Paths) -> None:
    """For a state directory that is deleted: nothing stays outside of it."""
    files = Descriptors(paths)
    for id in files.ids():
        files.remove(id)
    with suppress(OSError):  # somebody else's things are in it
        for each in (paths.descriptors, *paths.descriptors.parents[:2]):
            each.rmdir()


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else ""


def _replace(directory: Path, data: bytes) -> None:
    aside = directory / f".{_FILE}"
    with suppress(FileNotFoundError):
        aside.unlink()
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(fd, 0o644)
        os.write(fd, data)
    finally:
        os.close(fd)
    os.rename(aside, directory / _FILE)
