"""Mounts, made with the calls that work on handles: a mount is complete, flags and id map included, before it can be
reached by any path. And what `/proc/<pid>/mountinfo` says about the result.

Which mounts an allocation has is decided elsewhere (`rootfs`, `operations`), and in whose namespace by `namespaces`.
"""

import enum
import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking


class Attribute(enum.IntFlag):
    NONE = 0
    READ_ONLY = 0x01
    NOSUID = 0x02
    NODEV = 0x04
    NOEXEC = 0x08


class Propagation(enum.IntEnum):
    PRIVATE = kernel.MS_PRIVATE
    SLAVE = kernel.MS_SLAVE
    SHARED = kernel.MS_SHARED


_IDMAP = 0x00100000
_MEANINGS = {
    errno.EPERM: "not permitted: this needs root and CAP_SYS_ADMIN",
    errno.ENOSYS: "this kernel is too old for it (Linux 5.19 or newer is needed)",
    errno.ENODEV: "this kernel does not know the file system",
    errno.ENOENT: "there is no such file or directory",
    errno.ENOTDIR: "a part of the path is not a directory",
    errno.EBUSY: "it is in use",
    errno.ELOOP: "it is a link",
    errno.ENOSPC: "there is no room for another mount",
}
_ATTACH_MEANINGS = _MEANINGS | {errno.EINVAL: "a directory and a file cannot be mounted on each other"}
_IDMAP_MEANINGS = _MEANINGS | {errno.EINVAL: "this file system cannot be mounted with an id map on this kernel"}


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. `options` are those of the mount, `super_options` those of the file system."""

    id: int
    parent: int
    device: str
    root: str
    target: str
    options: frozenset[str]
    propagation: frozenset[str]  # empty: private
    filesystem: str
    source: str
    super_options: frozenset[str]

    @property
    def attributes(self) -> Attribute:
        named = {"ro": Attribute.READ_ONLY, "nosuid": Attribute.NOSUID}
        named |= {"nodev": Attribute.NODEV, "noexec": Attribute.NOEXEC}
        return Attribute(sum(attribute for name, attribute in named.items() if name in self.options))


def mounts(pid: int | str = "self") -> list[Mount]:
    """What a process sees, in the order in which it was mounted."""
    return parse(_read(pid))


def parse(mountinfo: str) -> list[Mount]:
    return [_parse_line(line) for line in mountinfo.split("\n") if line]


def at(target: Path | str, table: list[Mount] | None = None) -> Mount | None:
    """The mount that is seen at exactly this path: the last one there. Without `table`, among those of this process."""
    if table is None:
        # Only what can be it: a host may have thousands, and parsing is most of the time.
        marker = f" {_escaped(str(target))} "
        table = [_parse_line(line) for line in _read("self").split("\n") if marker in line]
    return next((mount for mount in reversed(table) if mount.target == str(target)), None)


def clone(source: Path, *, recursive: bool = False) -> int:
    """A detached copy of what is at `source`: the last part of the path may not be a link. The caller closes it."""
    with asking("open", source, _MEANINGS):
        return kernel.open_tree(kernel.AT_FDCWD, str(source), recursive=recursive)


def idmapped(source: Path, userns_fd: int, attributes: Attribute, *, recursive: bool = False) -> int:
    """A detached copy in which the ids on disk are those inside the user namespace. The caller closes it."""
    fd = clone(source, recursive=recursive)
    try:
        map_ids(fd, source, userns_fd, attributes, recursive=recursive)
    except HostError:
        os.close(fd)
        raise
    return fd


def map_ids(mount_fd: int, name: Path | str, userns_fd: int, attributes: Attribute, *, recursive: bool = False) -> None:
    """The same for a detached copy that is there already; `name` says what it is if this fails."""
    with asking("map the ids of", name, _IDMAP_MEANINGS):
        kernel.mount_setattr(mount_fd, "", set=attributes | _IDMAP, userns_fd=userns_fd, recursive=recursive)


def set_attributes(mount_fd: int, attributes: Attribute, *, recursive: bool = True) -> None:
    """Recursive unless told otherwise: read-only on the top mount alone leaves what is mounted below it writable."""
    with asking("set the flags of", "a mount", _MEANINGS):
        kernel.mount_setattr(mount_fd, "", set=attributes, recursive=recursive)


def set_propagation(target: Path, propagation: Propagation, *, recursive: bool = False) -> None:
    with asking("set the propagation of", target, _MEANINGS | {errno.EINVAL: "nothing is mounted there"}):
        kernel.mount_setattr(kernel.AT_FDCWD, str(target), propagation=propagation, recursive=recursive)


def filesystem(kind: str, options: Mapping[str, str | None], attributes: Attribute) -> int:
    """A new, detached mount of a file system. The caller closes it."""
    with asking("open the file system", kind, _MEANINGS):
        context = kernel.fsopen(kind)
    try:
        for key, value in options.items():
            kernel.fsconfig(context, key, value)
        kernel.fscreate(context)
        return kernel.fsmount(context, attributes)
    except OSError as error:
        # The file system itself says in words what it did not like, if it says anything.
        cause = _complaints(context) or _MEANINGS.get(error.errno or 0) or str(error.strerror)
        raise HostError("mount", kind, cause, transient=error.errno != errno.EINVAL) from error
    finally:
        os.close(context)


def attach(mount_fd: int, target: Path) -> None:
    """Makes a detached mount visible at `target`, in the caller's namespace. No part of the path may be a link."""
    with asking("mount on", target, _ATTACH_MEANINGS):
        resolve = kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_MAGICLINKS
        target_fd = kernel.openat2(kernel.AT_FDCWD, str(target), os.O_PATH, resolve)
        try:
            kernel.move_mount(mount_fd, target_fd)
        finally:
            os.close(target_fd)


def unmount(target: Path, *, lazy: bool = False) -> bool:
    """Takes the topmost mount at `target` away. Answers whether there was one."""
    flags = kernel.UMOUNT_NOFOLLOW | (kernel.MNT_DETACH if lazy else 0)
    with asking("unmount", target, _MEANINGS):
        try:
            kernel.umount2(str(target), flags)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return False
            raise
    return True


def _complaints(context: int) -> str:
    """The messages of a file system context, which carry a letter for their weight: `e overlay: no such dir`."""
    lines = []
    with suppress(OSError):
        while data := os.read(context, 4096):
            lines.append(data.decode(errors="replace").strip()[2:])
    return "; ".join(lines)


def _read(pid: int | str) -> str:
    with asking("read the mounts of", f"process {pid}"):
        return Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape")


def _parse_line(line: str) -> Mount:
    own, _, rest = line.partition(" - ")
    id, parent, device, root, target, options, *propagation = own.split(" ")
    kind, source, super_options = rest.split(" ")
    return Mount(
        int(id),
        int(parent),
        device,
        _plain(root),
        _plain(target),
        frozenset(options.split(",")),
        frozenset(propagation),
        kind,
        _plain(source),
        frozenset(super_options.split(",")),
    )


def _escaped(text: str) -> str:
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in text)


def _plain(text: str) -> str:
    """Blanks, newlines and backslashes come as three octal digits."""
    first, *others = text.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in others)
