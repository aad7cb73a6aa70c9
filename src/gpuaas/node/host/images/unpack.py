"""Puts the members of a tar archive into a tree.

What an image may hold: directories, regular files and links. Kept are owner, mode, time, setuid and setgid bits and
file capabilities, because sudo and ping are made of them: to an allocation they mean its own root, a nobody outside,
and only the host's root can enter the store. Left out: devices, FIFOs and every other extended attribute
(`trusted.overlay.*` would speak to the kernel). Refused: names with `..`, ids that no allocation has, too much.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from gpuaas.kit.errors import HostError
from gpuaas.node.host.images.tree import Owner, Tree
from gpuaas.node.host.mounts.idmaps import IDS_PER_RANGE

MAX_BYTES = 256 * 1024**3
MAX_ENTRIES = 5_000_000
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_PAX_CAPABILITY = "SCHILY.xattr.security.capability"


@dataclass
class Budget:
    """What an archive may still unpack to."""

    bytes: int = MAX_BYTES
    entries: int = MAX_ENTRIES

    def spend(self, size: int) -> None:
        self.bytes -= size
        self.entries -= 1
        if self.bytes < 0 or self.entries < 0:
            raise refused("the archive", "it unpacks to more than an image may hold")


def put_all(file: IO[bytes], tree: Tree, budget: Budget, *, layered: bool = False) -> None:
    """`layered`: over what is there, and taking away what the layer says, as OCI images are made."""
    if layered:
        # First, wherever in the layer it stands: it speaks of the layers below.
        for member, _ in members(file):
            _take_away(member, tree)
    for member, archive in members(file):
        if not (layered and member.name.rpartition("/")[2].startswith(_WHITEOUT)):
            _put(member, archive, tree, budget)


def members(file: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Each, with the archive to read it from."""
    file.seek(0)
    with tarfile.open(fileobj=file, mode="r:*") as archive:
        for member in archive:
            yield member, archive
            archive.members.clear()  # type: ignore[attr-defined]  # it would remember every file of a large image


def member_name(name: str) -> str:
    """As a path below the root; empty for the root itself."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise refused(name, "a name with .. in it")
    return "/".join(parts)


def refused(target: str, cause: str) -> HostError:
    return HostError("unpack", target, cause, transient=False)


def _take_away(member: tarfile.TarInfo, tree: Tree) -> None:
    parent, _, last = member_name(member.name).rpartition("/")
    if last == _OPAQUE:
        for name in tree.names(parent):
            tree.remove(f"{parent}/{name}" if parent else name)
    elif last.startswith(_WHITEOUT) and last != _WHITEOUT:
        name = member_name(last.removeprefix(_WHITEOUT))
        if name:
            tree.remove(f"{parent}/{name}" if parent else name)


def _put(member: tarfile.TarInfo, archive: tarfile.TarFile, tree: Tree, budget: Budget) -> None:
    name = member_name(member.name)
    if max(member.uid, member.gid) >= IDS_PER_RANGE or min(member.uid, member.gid) < 0:
        raise refused(member.name, f"its owner {member.uid}:{member.gid} is outside 0 to {IDS_PER_RANGE - 1}")
    budget.spend(member.size if member.isreg() else 0)
    capability = member.pax_headers.get(_PAX_CAPABILITY, "").encode("utf-8", "surrogateescape")
    owner = Owner(member.uid, member.gid, member.mode & 0o7777, float(member.mtime), capability)
    if member.isdir():
        tree.directory(name, owner)
    elif name and member.isreg():
        data = archive.extractfile(member)
        assert data is not None
        tree.file(name, data, owner)
    elif name and member.issym():
        tree.symlink(name, member.linkname, owner)
    elif name and member.islnk():
        tree.hardlink(name, member_name(member.linkname))
