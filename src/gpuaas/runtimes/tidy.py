"""What nobody needs on the shelf any more: images of earlier builds, files that no lock names, logs of old failures.

What a version's last build was made of stays, so that it can be made again from the same files.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.runtimes.build.base import base_of
from gpuaas.runtimes.lock.lockfile import Lock
from gpuaas.runtimes.shelf import Shelf, remove_tree, sync_directory


class Unused(Struct, frozen=True):
    kind: str  # image, papers, artifact, base, log
    path: str
    size: int


def unused(shelf: Shelf, before: float) -> list[Unused]:
    """What would go now. `before`: unix seconds; what was changed later stays."""
    if not shelf.path.exists():
        return []
    kept = _kept(shelf)
    found = [(kind, path) for kind, path in _everything(shelf) if path not in kept]
    return [Unused(kind, str(path), _size(path)) for kind, path in found if path.lstat().st_mtime < before]


def remove(shelf: Shelf, before: float) -> list[Unused]:
    """Papers go before the image that they describe: whatever is killed in between leaves nothing that looks whole."""
    if not shelf.path.exists():
        return []
    with shelf.tidying():
        found = sorted(unused(shelf, before), key=lambda each: each.kind != "papers")
        for each in found:
            path = Path(each.path)
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)
        for directory in {Path(each.path).parent for each in found}:
            sync_directory(directory)
    return found


def _kept(shelf: Shelf) -> set[Path]:
    kept: set[Path] = set()
    locks = list((shelf.path / "locks").glob("*/*.json"))
    for bundle, version, _, sha256 in shelf.all_built():
        place = shelf.bundle(bundle, version) / sha256
        kept |= {place, shelf.image(sha256)}
        locks.append(place / "lock.json")
    for file in locks:
        lock = _lock(file)
        if lock is not None:
            kept |= {shelf.artifact(each.digest) for each in lock.everything}
            kept |= {base_of(lock.base, shelf), base_of((*lock.base, *lock.tools), shelf)}
    return kept


def _lock(file: Path) -> Lock | None:
    """None: builds cannot read it either, and make another one."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Lock)
    except (OSError, msgspec.DecodeError, UnicodeError):
        return None


def _everything(shelf: Shelf) -> Iterator[tuple[str, Path]]:
    for kind, pattern in (("image", "images/*"), ("artifact", "artifacts/*"), ("base", "bases/*"), ("log", "logs/*")):
        yield from ((kind, path) for path in sorted(shelf.path.glob(pattern)))
    for path in sorted(shelf.path.glob("bundles/*/*/*")):
        if path.is_dir():
            yield "papers", path


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(os.lstat(os.path.join(where, name)).st_size for where, _, names in os.walk(path) for name in names)
