"""Writes a tree as EROFS: same tree, same bytes. Everything belongs to root and has one time."""

import hashlib
import os
import stat
import uuid
from pathlib import Path
from typing import IO

from gpuaas.runtimes import process, tree
from gpuaas.runtimes.build.sandbox import EPOCH

# Without extended inodes there is one time for all files and no room for others: Python would judge bytecode stale.
_OPTIONS = ["-zlz4", "-Eforce-inode-extended", "-x-1", "--all-root", f"-T{EPOCH}"]


def open_to_all(made: Path) -> None:
    """Readable by everybody, writable by root, executable as it was."""
    for path, about in tree.walk(made):
        if not stat.S_ISLNK(about.st_mode):
            os.chmod(made / path, _mode(about.st_mode))
    made.chmod(0o755)


def write_image(made: Path, image: Path, identity: str, log: IO[bytes]) -> str:
    """The sha256 of the image. `identity` decides the file system's UUID."""
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"urn:gpuaas:runtime:{identity}")
    process.run(["mkfs.erofs", *_OPTIONS, f"-U{number}", str(image), str(made)], log, what="mkfs.erofs")
    with image.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mode(mode: int) -> int:
    if stat.S_ISDIR(mode):
        return 0o755
    return 0o755 if mode & 0o111 else 0o644
