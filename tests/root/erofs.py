"""Images of runtimes, made by hand: a few files, or the host's own Python."""

import hashlib
import shutil
import subprocess
import sysconfig
from pathlib import Path

from gpuaas.node.host.interface import Host
from gpuaas.wire.node import RuntimeSpec

_PART = 8 << 20


class Image:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.digest = hashlib.sha256(data).hexdigest()

    def spec(self, bundle: str, version: str, *, current: bool = True) -> RuntimeSpec:
        return RuntimeSpec(bundle, version, self.digest, len(self.data), current, applied_at=1_800_000_000)

    def add(self, to: Host) -> None:
        offset = to.image_begin(self.digest, len(self.data))
        to.image_append(self.digest, offset, self.data[offset:])
        to.image_end(self.digest)


class FileImage:
    """One that is on a shelf, under the name of its digest: too large to be held in memory."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.digest = file.stem
        self.size = file.stat().st_size

    def spec(self, bundle: str, version: str, *, current: bool = True) -> RuntimeSpec:
        return RuntimeSpec(bundle, version, self.digest, self.size, current, applied_at=1_800_000_000)

    def add(self, to: Host) -> None:
        offset = to.image_begin(self.digest, self.size)
        with self._file.open("rb") as file:
            file.seek(offset)
            while data := file.read(_PART):
                to.image_append(self.digest, offset, data)
                offset += len(data)
        to.image_end(self.digest)


def erofs(tree: Path) -> Image:
    file = tree.with_name(f"{tree.name}.erofs")
    command = ["mkfs.erofs", "-T0", "-Eforce-inode-extended", "--all-root", str(file), str(tree)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return Image(file.read_bytes())


def small(work: Path, text: str, bundle: str = "tool") -> Image:
    """A program that says `text`."""
    tree = work / f"tree-{text}"
    files = {"bin/tool": f"#!/bin/sh\necho {text}\n", "lib/data": text, "activate.sh": _activate(bundle, text)}
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
        (tree / name).chmod(0o755)
    return erofs(tree)


def python(work: Path, version: str) -> Image:
    """This machine's Python with its libraries, and a module `late` that says `version`."""
    tree, library = work / f"python-{version}", Path(sysconfig.get_path("stdlib"))
    program = Path(f"/usr/bin/{library.name}")
    (tree / "bin").mkdir(parents=True)
    shutil.copy(program, tree / "bin/python3")
    left_out = shutil.ignore_patterns("test", "*.pyc", "config-*", "*-packages", "lib2to3", "idlelib")
    shutil.copytree(f"/usr/lib/{library.name}", tree / "lib" / library.name, ignore=left_out)
    for line in subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.splitlines():
        name, _, path = line.strip().partition(" => ")
        if name.startswith(("libz.", "libexpat.")):
            shutil.copy(path.split()[0], tree / "lib" / name)
    (tree / "lib" / library.name / "late.py").write_text(f"said = {version!r}\n")
    root = f"/opt/gpuaas/runtimes/python/{version}"
    (tree / "activate.sh").write_text(f"export LD_LIBRARY_PATH={root}/lib PYTHONDONTWRITEBYTECODE=1\n")
    with (tree / "activate.sh").open("a") as file:
        file.write(f'export PATH={root}/bin:"$PATH"\n')
    return erofs(tree)


def _activate(bundle: str, version: str) -> str:
    return f'export TOOL_VERSION={version}\nexport PATH=/opt/gpuaas/runtimes/{bundle}/{version}/bin:"$PATH"\n'
