"""Building `python:3.11+ml` beside what uv alone needs for the same wheels; importing from image and directory.

    build       ours, from files that are here: image, checks and bill of materials included
    uv          `uv pip install --compile-bytecode` of the same wheels into an empty directory
    import      `import numpy, pandas, sklearn` from the mounted image and from the unpacked directory, warm

Promised: build <= 1.5x of uv, import <= 1.05x of the directory. Needs root for the mount.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from floors.results import record

from gpuaas.runtimes import settings, tools
from gpuaas.runtimes.build.base import ensure_base
from gpuaas.runtimes.build.builder import build
from gpuaas.runtimes.build.sandbox import Sandbox
from gpuaas.runtimes.library import Library
from gpuaas.runtimes.lock.lockfile import Lock
from gpuaas.runtimes.shelf import Shelf
from gpuaas.runtimes.untrusted import unpack

CACHE = Path(os.environ.get("GPUAAS_TEST_CACHE", "/var/cache/gpuaas-test"))
ROUNDS = 5
TURNS = 10  # turn and turn about, so that a busy minute of this machine is everybody's
NAME = "python:3.11+ml"


def main() -> int:
    if os.geteuid() != 0 or tools.missing():
        print(f"skipped: needs root and {', '.join(tools.PROGRAMS)}")
        return 0
    shelf, recipe = Shelf(CACHE / "runtimes"), Library().get(NAME)
    build(recipe, tools.architecture(), settings.load(), shelf)  # fetches, and warms what both use
    with tempfile.TemporaryDirectory(dir=shelf.path) as directory:
        work = Path(directory)
        ours, manifest_lock = _ours(shelf)
        plain = _uv(shelf, manifest_lock, work)
        image, unpacked = _imports(shelf, manifest_lock, work)
    lines = [
        f"Seconds for {NAME}, from files that are here; load average at the end {os.getloadavg()[0]:.0f} on"
        f" {os.cpu_count()} cores.",
        "",
        "| what | ours | beside | ratio | promise |",
        "|---|---|---|---|---|",
        f"| build, image and checks included | {ours:.1f} | uv with bytecode {plain:.1f} | {ours / plain:.2f} | 1.5x |",
        f"| import, median of {TURNS * ROUNDS} | {image:.3f} | a directory {unpacked:.3f} | {image / unpacked:.2f}"
        " | 1.05x |",
    ]
    print("\n".join(lines))
    record("runtimes", "\n".join(lines))
    return 0


def _ours(shelf: Shelf) -> tuple[float, Lock]:
    recipe = Library().get(NAME)
    started = time.monotonic()
    built = build(recipe, tools.architecture(), settings.load(), shelf, again=True)
    taken = time.monotonic() - started
    place = shelf.bundle(recipe.name, recipe.version) / built.sha256
    return taken, msgspec.json.decode((place / "lock.json").read_bytes(), type=Lock)


def _uv(shelf: Shelf, lock: Lock, work: Path) -> float:
    wheels = work / "wheels"
    wheels.mkdir()
    for artifact in lock.artifacts:
        if artifact.kind == "pypi":
            os.link(shelf.artifact(artifact.digest), wheels / artifact.file)
    command = [tools.uv(), "pip", "install", "--quiet", "--no-config", "--offline", "--no-index", "--no-deps"]
    command += ["--python", sys.executable, "--target", str(work / "plain"), "--compile-bytecode"]
    command += ["--cache-dir", str(work / "cache"), *(str(file) for file in wheels.iterdir())]
    started = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - started


def _imports(shelf: Shelf, lock: Lock, work: Path) -> tuple[float, float]:
    recipe = Library().get(NAME)
    sha256 = shelf.built(recipe.name, recipe.version)
    assert sha256 is not None
    base = ensure_base(lock.base, shelf, work)
    seen, tree = work / "seen", work / "tree"
    seen.mkdir()
    tree.mkdir()
    unpack(shelf.image(sha256), tree, 10**10, 10**6)
    tree.chmod(0o755)
    mounted = Sandbox(base, seen, recipe.root, image=shelf.image(sha256))
    plain = Sandbox(base, tree, recipe.root)
    code = "import time; t = time.perf_counter(); import numpy, pandas, sklearn; print(time.perf_counter() - t)"
    # One mount for all of them, as on a node; the first import fills the page cache of either.
    script = f'for round in $(seq {ROUNDS + 1}); do "$1" -c "$2"; done'
    command = ["/bin/sh", "-e", "-c", script, "sh", f"{recipe.root}/bin/python", code]
    times: dict[str, list[float]] = {"image": [], "directory": []}
    for _ in range(TURNS):
        for name, sandbox in (("image", mounted), ("directory", plain)):
            times[name] += [float(line) for line in sandbox.run(command).split()][1:]
    shutil.rmtree(tree)
    return statistics.median(times["image"]), statistics.median(times["directory"])


if __name__ == "__main__":
    sys.exit(main())
