"""Looks at a finished tree: every entry with its digest, or a refusal. No link is followed, no device opened.

The same look is taken at what was built here and at what comes from elsewhere.
"""

import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gpuaas.kit.errors import Problem


class Limits(Struct, frozen=True):
    entries: int = 500_000
    total_bytes: int = 64 * 10**9
    file_bytes: int = 16 * 10**9
    depth: int = 64
    path_bytes: int = 1024


LIMITS = Limits()


class Entry(Struct, frozen=True, omit_defaults=True):
    path: str
    kind: str  # file, directory, link
    mode: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""


def examine(root: Path, limits: Limits = LIMITS, *, unique_names: bool = False) -> list[Entry]:
    """In order of path. `unique_names` refuses two names that differ only in case or Unicode form."""
    found: list[Entry] = []
    total = 0
    for path, about in walk(root):
        _name(path, limits)
        entry = _entry(root, path, about, limits)
        total += entry.size
        found.append(entry)
        if len(found) > limits.entries:
            raise refused(path, f"there are more than {limits.entries} entries")
        if total > limits.total_bytes:
            raise refused(path, f"all files together are larger than {limits.total_bytes} bytes")
    if unique_names:
        _unique(found)
    for entry in found:
        if entry.kind == "link" and not stays_inside(root, entry.path):
            raise refused(entry.path, f"it is a link to {entry.target!r}, outside of the runtime")
    return sorted(found, key=lambda each: each.path)


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below `root`, relative to it, links not followed."""
    waiting = [""]
    while waiting:
        where = waiting.pop()
        with os.scandir(root / where) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                path = f"{where}/{entry.name}" if where else entry.name
                about = entry.stat(follow_symlinks=False)
                yield path, about
                if stat.S_ISDIR(about.st_mode):
                    waiting.append(path)


def _entry(root: Path, path: str, about: os.stat_result, limits: Limits) -> Entry:
    mode = about.st_mode
    if stat.S_ISLNK(mode):
        return Entry(path, "link", target=os.readlink(root / path))
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise refused(path, "it is setuid or setgid")
    if attributes := [name for name in os.listxattr(root / path, follow_symlinks=False) if _privileged(name)]:
        raise refused(path, f"it has the attribute {attributes[0]}")
    if stat.S_ISDIR(mode):
        return Entry(path, "directory", mode & 0o1777)
    if not stat.S_ISREG(mode):
        raise refused(path, "it is neither a file, a directory nor a link")
    if about.st_size > limits.file_bytes:
        raise refused(path, f"it is larger than {limits.file_bytes} bytes")
    return Entry(path, "file", mode & 0o777, about.st_size, _sha256(root / path))


def _privileged(attribute: str) -> bool:
    return attribute.startswith(("security.capability", "system.posix_acl", "trusted.", "user."))


def _sha256(file: Path) -> str:
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb", buffering=0) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _name(path: str, limits: Limits) -> None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise refused(ascii(path), "its name is not UTF-8") from None
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        raise refused(ascii(path), "its name holds a control character")
    if len(encoded) > limits.path_bytes or path.count("/") >= limits.depth:
        raise refused(path[:100], "its path is too long or too deep")


def _unique(entries: list[Entry]) -> None:
    seen: dict[str, str] = {}
    for entry in entries:
        key = unicodedata.normalize("NFKC", entry.path).casefold()
        if (other := seen.setdefault(key, entry.path)) != entry.path:
            said = f"{entry.path}: its name is too much like {other!r}."
            hint = "Nothing of it was kept. Whoever builds it leaves one of them out: `remove:` in the recipe."
            raise Problem("refused_content", 422, said, hint)


def stays_inside(root: Path, link: str) -> bool:
    """Follows a link step by step, as the kernel would, and says whether it ever leaves `root`."""
    here: list[str] = link.split("/")[:-1]
    waiting = list(reversed(os.readlink(root / link).split("/")))
    if os.readlink(root / link).startswith("/"):
        return False
    for _ in range(4096):
        if not waiting:
            return True
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return False
            here.pop()
            continue
        here.append(part)
        path = root.joinpath(*here)
        if path.is_symlink():
            target = os.readlink(path)
            if target.startswith("/"):
                return False
            here.pop()
            waiting.extend(reversed(target.split("/")))
    return False  # a circle, or too far to be honest


def refused(path: str, why: str) -> Problem:
    return Problem("refused_content", 422, f"{path}: {why}.", "Nothing of it was kept.")
