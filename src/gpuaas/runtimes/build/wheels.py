"""Installs the locked wheels with uv, offline, for the interpreter in the tree; then bytecode that never goes stale."""

import os
import shutil
from pathlib import Path
from typing import IO

import msgspec

from gpuaas.runtimes import tools
from gpuaas.runtimes.build.sandbox import Sandbox
from gpuaas.runtimes.lock.lockfile import Artifact
from gpuaas.runtimes.shelf import Shelf, remove_tree

_UNPACKED = ".unpacked-wheels"
_SHARDS = 4
# Bytecode holds references that depend on what one process compiled before: always the same files in the same order
# give the same bytes. It is not compared with the source's time, which an image does not keep.
_COMPILE = """
import os, py_compile, sys
root, shard, shards = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
files = sorted(os.path.join(d, f) for d, _, names in os.walk(root) for f in names if f.endswith(".py"))
for file in files[shard::shards]:
    try:
        py_compile.compile(file, doraise=True, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except Exception:  # templates and tests of syntax errors; python would not import them either
        pass
"""


def install(artifacts: list[Artifact], python: str, sandbox: Sandbox, shelf: Shelf, work: Path, log: IO[bytes]) -> None:
    """`artifacts`: wheels that are installed. Links are made under the file names that uv wants."""
    wheels = work / "wheels"
    wheels.mkdir()
    for artifact in artifacts:
        _beside(shelf.artifact(artifact.digest), wheels / artifact.file)
    command = ["/tmp/uv", "pip", "install", "--no-config", "--offline", "--no-index", "--no-deps"]  # noqa: S108
    command += ["--break-system-packages", "--link-mode", "hardlink", "--python", f"{sandbox.root}/{python}"]
    # Unpacked on the same mount and linked into place: everything is written once.
    command += ["--cache-dir", f"{sandbox.root}/{_UNPACKED}"]
    # By name and not by path: uv would note the path of each wheel in the tree.
    command += ["--find-links", "/tmp/wheels"]  # noqa: S108 -- inside the sandbox
    command += [f"{artifact.name}=={artifact.version}" for artifact in artifacts]
    binds = {Path(tools.uv_binary()): "/tmp/uv", wheels: "/tmp/wheels"}  # noqa: S108
    # Debian's Python would install into local/ below its prefix, where few packages look for their own data.
    as_system = msgspec.structs.replace(sandbox, environment={"DEB_PYTHON_INSTALL_LAYOUT": "deb"})
    as_system.run(command, log, writable=True, binds=binds, what=f"uv pip install {len(artifacts)} wheels")
    remove_tree(sandbox.tree / _UNPACKED)
    _forget_when(sandbox.tree)


def _forget_when(tree: Path) -> None:
    """uv notes the time of each wheel beside it: another time, another image."""
    for note in list(tree.rglob("*.dist-info/uv_cache.json")):
        note.unlink()
        record = note.with_name("RECORD")
        kept = [line for line in record.read_text().splitlines() if "/uv_cache.json," not in line]
        record.write_text("\n".join([*kept, ""]))


def compile_bytecode(python: str, sandbox: Sandbox, log: IO[bytes]) -> None:
    script = "\n".join(
        f'"$1" -I -B -c "$2" "$3" {shard} {_SHARDS} & pid{shard}=$!' for shard in range(_SHARDS)
    ) + "".join(f"\nwait $pid{shard}" for shard in range(_SHARDS))
    interpreter = f"{sandbox.root}/{python}"
    sandbox.run(
        ["/bin/sh", "-e", "-c", script, "sh", interpreter, _COMPILE, sandbox.root], log, writable=True, what="bytecode"
    )


def _beside(file: Path, name: Path) -> None:
    try:
        os.link(file, name)
    except OSError:
        shutil.copyfile(file, name)
