"""Lets programs of Debian packages find their libraries in the tree, wherever the machine keeps its own.

An executable gets an RPATH, which also holds for what it loads later, except for libraries that have one themselves:
those get it, too. Packages of a newer Debian bring their own C library and loader; the loader's path in the executable
is absolute, which is fine: the tree has one place.
"""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from gpuaas.runtimes import process, tree

_LOADERS = {"EM_X86_64": "lib64/ld-linux-x86-64.so.2", "EM_AARCH64": "lib/ld-linux-aarch64.so.1"}
_TRIPLETS = {"EM_X86_64": "x86_64-linux-gnu", "EM_AARCH64": "aarch64-linux-gnu"}


def relocate(made: Path, root: str, log: IO[bytes], say: Callable[[str, int | None], None]) -> None:
    """Every program and library of the tree, as Debian packages left them."""
    for path, about in tree.walk(made):
        candidate = about.st_mode & 0o111 or ".so" in path.rpartition("/")[2]
        if stat.S_ISREG(about.st_mode) and candidate and about.st_size > 64:
            _one(made, path, root, log)
    say("programs find their libraries", None)


def _one(made: Path, path: str, root: str, log: IO[bytes]) -> None:
    with (made / path).open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return
        try:
            elf = ELFFile(file)
            machine, interpreter = elf["e_machine"], elf.get_section_by_name(".interp")
            dynamic = elf.get_section_by_name(".dynamic")
            tags = list(dynamic.iter_tags()) if isinstance(dynamic, DynamicSection) else []
            # The library names these attributes after the tags, at run time.
            own = [str(getattr(tag, name)) for tag in tags for name in ("runpath", "rpath") if hasattr(tag, name)]
        except (ELFError, KeyError, ValueError):
            return
    if machine not in _LOADERS or (interpreter is None and not own):
        return  # a library without places of its own uses those of the program
    places = [*own, f"{root}/lib/{_TRIPLETS[machine]}"]
    command = ["patchelf", "--force-rpath", "--set-rpath", ":".join(places)]
    if interpreter is not None and ((loader := made / _LOADERS[machine]).exists() or loader.is_symlink()):
        command += ["--set-interpreter", f"{root}/{_LOADERS[machine]}"]
    process.run([*command, str(made / path)], log, what=f"patchelf {path}")
