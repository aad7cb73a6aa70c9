"""A program and everything that it loads, found by reading the files: nothing of an image is ever run to find out."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from gpuaas.kit.errors import HostError

_DIRECTORIES = ("lib", "usr/lib", "lib64", "usr/lib64")


def closure(tree: Path, program: str) -> tuple[Path, dict[str, Path]]:
    """The loader of `program` in the tree at `tree`, and the libraries, by the names that they are looked up with."""
    found: dict[str, Path] = {}
    waiting = [_inside(tree, program)]
    loader, _ = _read(waiting[0])
    if not loader:
        raise HostError("use", program, "it is not a dynamic program", transient=False)
    while waiting:
        for name in _read(waiting.pop())[1]:
            if name not in found:
                found[name] = _library(tree, name)
                waiting.append(found[name])
    return _inside(tree, loader), found


def _library(tree: Path, name: str) -> Path:
    for directory in _searched(tree):
        if os.path.lexists(directory / name):
            return _inside(tree, str(PurePosixPath("/") / (directory / name).relative_to(tree)))
    raise HostError("use", "the image", f"it lacks the library {name}", transient=False)


def _searched(tree: Path) -> Iterator[Path]:
    for name in _DIRECTORIES:
        directory = _inside(tree, name)
        if directory.is_dir():
            yield from sorted(each for each in directory.glob("*-linux-gnu*") if each.is_dir())
            yield directory


def _inside(tree: Path, path: str) -> Path:
    """Follows links as a process inside would: absolute ones start at the tree, and `..` does not lead out of it."""
    parts, at = list(PurePosixPath("/", path).parts[1:]), tree
    for _ in range(400):
        if not parts:
            return at
        part = parts.pop(0)
        if part == "..":
            at = at if at == tree else at.parent
        elif (at / part).is_symlink():
            target = PurePosixPath(os.readlink(at / part))
            parts = [*(target.parts[1:] if target.is_absolute() else target.parts), *parts]
            at = tree if target.is_absolute() else at
        else:
            at = at / part
    raise HostError("use", path, "its links go in circles", transient=False)


def _read(file: Path) -> tuple[str, list[str]]:
    """The loader that it asks for, and the libraries that it needs."""
    # Only here: megabytes that an agent needs once after a boot.
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    try:
        with file.open("rb") as stream:
            elf = ELFFile(stream)
            loaders = [each.get_interp_name() for each in elf.iter_segments() if isinstance(each, InterpSegment)]
            sections = [each for each in elf.iter_sections() if isinstance(each, DynamicSection)]
            tags: list[Any] = [tag for section in sections for tag in section.iter_tags("DT_NEEDED")]
            needed = [str(tag.needed) for tag in tags]
    except (OSError, ELFError) as error:
        raise HostError("read", file.name, f"it is not a program or library: {error}", transient=False) from error
    return (loaders or [""])[0], needed
