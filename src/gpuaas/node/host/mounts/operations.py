"""What can be done inside an allocation's mount namespace, as data: the agent writes the list, the helper performs it.

Each operation but `Place` is safe to repeat: what is mounted already is left alone if it is what was asked for, and
refused if not.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import idmaps, loops, mounts
from gpuaas.node.host.mounts.mounts import Attribute, Mount, Propagation


class Operation(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    pass


class Directory(Operation, frozen=True):
    """An empty directory, or one that is there."""

    path: str
    mode: int = 0o755
    owner: int = 0  # user and group


class Bind(Operation, frozen=True):
    """`uid_base`: the ids on disk appear shifted by it."""

    source: str
    target: str
    attributes: Attribute = Attribute.NOSUID | Attribute.NODEV
    recursive: bool = False
    uid_base: int = 0


class FileSystem(Operation, frozen=True):
    kind: str
    target: str
    options: dict[str, str | None] = {}
    attributes: Attribute = Attribute.NOSUID | Attribute.NODEV


class Image(Operation, frozen=True):
    """A file that holds an ext4 file system."""

    file: str
    target: str
    attributes: Attribute = Attribute.NOSUID | Attribute.NODEV


class Overlay(Operation, frozen=True):
    """The layers are named relative to `directory`: the options are shown inside, and say nothing about this host."""

    directory: str
    lower: str
    upper: str
    work: str
    target: str
    attributes: Attribute = Attribute.NODEV


class Propagate(Operation, frozen=True):
    target: str
    propagation: Propagation


class Unmount(Operation, frozen=True):
    """`lazy`: also from under whoever uses it. `all_`: whatever is mounted there on top of each other."""

    target: str
    lazy: bool = False
    all_: bool = False


class Place(Operation, frozen=True):
    """A copy of a mount of the host's, whose handle came with the request; on top of what is mounted there."""

    target: str
    attributes: Attribute = Attribute.NOSUID | Attribute.NODEV
    uid_base: int = 0


class Remove(Operation, frozen=True):
    """An empty directory, or nothing. `if_empty`: one that is not stays, and that is no error."""

    path: str
    if_empty: bool = False


AnyOperation = Directory | Bind | FileSystem | Image | Overlay | Propagate | Unmount | Place | Remove

# Discarded blocks become holes in the image. The inode tables of a sparse image read as zero already, and nobody needs
# the bitmaps of hundreds of empty groups before the first file is written.
_EXT4 = {"discard": None, "noinit_itable": None, "no_prefetch_block_bitmaps": None, "errors": "remount-ro"}
# Said rather than left to the kernel's configuration. Redirects let a directory of the lower layer be renamed; only
# the host's root can write them, and no image brings any.
_OVERLAY = {"redirect_dir": "on", "index": "off", "metacopy": "off"}


def perform(operation: AnyOperation, handle: int | None = None) -> None:
    match operation:
        case Directory():
            _directory(operation)
        case Propagate(target, propagation):
            mounts.set_propagation(Path(target), propagation)
        case Unmount(target, lazy, all_):
            while mounts.unmount(Path(target), lazy=lazy) and all_:
                pass
        case Place():
            _place(operation, handle)
        case Remove():
            _remove(operation)
        case _:
            present = mounts.at(operation.target)
            if present is None:
                _mount(operation)
            elif not _is(operation, present):
                raise HostError("mount on", operation.target, f"a {present.filesystem} is mounted there already")


def _mount(operation: Bind | FileSystem | Image | Overlay) -> None:
    target = Path(operation.target)
    match operation:
        case Bind():
            fd = _bind(operation)
        case FileSystem(kind, _, options, attributes):
            fd = mounts.filesystem(kind, options, attributes)
        case Image(file, _, attributes):
            # Attached before the device is let go: between the two, only the mount holds it.
            with loops.attached(Path(file)) as device:
                fd = mounts.filesystem("ext4", {"source": str(device), **_EXT4}, attributes)
        case Overlay(directory, lower, upper, work, _, attributes):
            with asking("enter", directory):
                os.chdir(directory)
            layers = {"source": "machine", "lowerdir": lower, "upperdir": upper, "workdir": work}
            fd = mounts.filesystem("overlay", layers | _OVERLAY, attributes)
    try:
        mounts.attach(fd, target)
    finally:
        os.close(fd)


def _bind(operation: Bind) -> int:
    source = Path(operation.source)
    if operation.uid_base:
        userns = idmaps.map_only(operation.uid_base)
        try:
            return mounts.idmapped(source, userns, operation.attributes, recursive=operation.recursive)
        finally:
            os.close(userns)
    fd = mounts.clone(source, recursive=operation.recursive)
    try:
        mounts.set_attributes(fd, operation.attributes)
    except HostError:
        os.close(fd)
        raise
    return fd


def _place(operation: Place, handle: int | None) -> None:
    if handle is None:
        raise HostError("mount on", operation.target, "nothing came to be mounted there", transient=False)
    if operation.uid_base:
        userns = idmaps.map_only(operation.uid_base)
        try:
            mounts.map_ids(handle, operation.target, userns, operation.attributes)
        finally:
            os.close(userns)
    else:
        mounts.set_attributes(handle, operation.attributes)
    mounts.attach(handle, Path(operation.target))


def _remove(operation: Remove) -> None:
    with asking("remove", operation.path), suppress(FileNotFoundError):
        try:
            os.rmdir(operation.path)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not operation.if_empty:
                raise


def _is(operation: Bind | FileSystem | Image | Overlay, present: Mount) -> bool:
    if present.attributes & operation.attributes != operation.attributes:
        return False
    match operation:
        case Bind(source):
            with asking("look at", source):
                wanted = os.stat(source, follow_symlinks=False)
                there = os.stat(present.target, follow_symlinks=False)
            same = (wanted.st_dev, wanted.st_ino) == (there.st_dev, there.st_ino)
            return same and bool(operation.uid_base) == ("idmapped" in present.options)
        case FileSystem(kind):
            return present.filesystem == kind
        case Image(file):
            return present.filesystem == "ext4" and loops.in_use(Path(file))
        case Overlay():
            return present.filesystem == "overlay"


def _directory(operation: Directory) -> None:
    with asking("make the directory", operation.path):
        with suppress(FileExistsError):
            os.mkdir(operation.path, operation.mode)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(operation.path, flags)
        try:
            # Still the host's root: just made, now or before a crash. Later its owner is the tenant's business.
            if operation.owner and os.fstat(fd).st_uid == 0:
                os.fchown(fd, operation.owner, operation.owner)
        finally:
            os.close(fd)
