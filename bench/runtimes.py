"""Building `python:3.11+ml` beside what uv alone needs for the same wheels; importing from image and directory.

    build       ours, from files that are here: image, checks and bill of materials included
    uv          `uv pip install --compile-bytecode` of the same wheels into an empty directory, in turn with ours
    import      `import numpy, pandas, sklearn` from the mounted image and from the unpacked directory, warm, one from
                each in turn: a busy second of this machine is as long as an import, so it must be everybody's

Promised, of medians: build <= 1.5x of uv, import <= 1.05x of the directory. Needs root for the mount.
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
BUILDS = 3
ROUNDS = 50
WARM = 2
NAME = "python:3.11+ml"


def main() -> int:
    if os.geteuid() != 0 or tools.missing():
        print(f"skipped: needs root and {', '.join(tools.PROGRAMS)}")
        return 0
    shelf, recipe = Shelf(CACHE / "runtimes"), Library().get(NAME)
    build(recipe, tools.architecture(), settings.load(), shelf)  # fetches, and warms what both use
    with tempfile.TemporaryDirectory(dir=shelf.path) as directory:
        work = Path(directory)
        lock = _lock(shelf)
        ours, plain = _builds(shelf, lock, work)
        image, unpacked = _imports(shelf, lock, work)
    lines = [
        f"Seconds for {NAME}, from files that are here; load average at the end {os.getloadavg()[0]:.0f} on"
        f" {os.cpu_count()} cores.",
        "",
        "| what | ours | beside | ratio | promise |",
        "|---|---|---|---|---|",
        f"| build, image and checks included, median of {BUILDS} | {_shown(ours)} | uv with bytecode {_shown(plain)} |"
        f" {statistics.median(ours) / statistics.median(plain):.2f} | 1.5x |",
        f"| import, median of {ROUNDS} | {image:.3f} | a directory {unpacked:.3f} | {image / unpacked:.2f} | 1.05x |",
    ]
    print("\n".join(lines))
    record("runtimes", "\n".join(lines))
    return 0


def _shown(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} ({min(times):.1f}-{max(times):.1f})"


def _lock(shelf: Shelf) -> Lock:
    recipe = Library().get(NAME)
    sha256 = shelf.built(recipe.name, recipe.version)
    assert sha256 is not None
    place = shelf.bundle(recipe.name, recipe.version) / sha256
    return msgspec.json.decode((place / "lock.json").read_bytes(), type=Lock)


def _builds(shelf: Shelf, lock: Lock, work: Path) -> tuple[list[float], list[float]]:
    """One of each in turn, as with imports."""
    wheels = work / "wheels"
    wheels.mkdir()
    for artifact in lock.artifacts:
        if artifact.kind == "pypi":
            os.link(shelf.artifact(artifact.digest), wheels / artifact.file)
    times = [(_ours(shelf), _uv(wheels, work / f"uv-{round}")) for round in range(BUILDS)]
    return [ours for ours, _ in times], [plain for _, plain in times]


def _ours(shelf: Shelf) -> float:
    started = time.monotonic()
    build(Library().get(NAME), tools.architecture(), settings.load(), shelf, again=True)
    return time.monotonic() - started


def _uv(wheels: Path, made: Path) -> float:
    """Into nothing, with a cache that has nothing: removed before the next, as our own tree is."""
    command = [tools.uv(), "pip", "install", "--quiet", "--no-config", "--offline", "--no-index", "--no-deps"]
    command += ["--python", sys.executable, "--target", str(made / "plain"), "--compile-bytecode"]
    command += ["--cache-dir", str(made / "cache"), *(str(file) for file in wheels.iterdir())]
    started = time.monotonic()
    subprocess.run(command, check=True)
    taken = time.monotonic() - started
    shutil.rmtree(made)
    return taken


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
    image = _Importer(Sandbox(base, seen, recipe.root, image=shelf.image(sha256)), work / "beside-image")
    directory = _Importer(Sandbox(base, tree, recipe.root), work / "beside-directory")
    try:
        for round in range(WARM + ROUNDS):
            for each in (image, directory) if round % 2 else (directory, image):
                each.once()
    finally:
        image.close()
        directory.close()
    return statistics.median(image.times[WARM:]), statistics.median(directory.times[WARM:])


class _Importer:
    """A sandbox that stays, with one mount for all imports, as on a node. Each is of a new process."""

    def __init__(self, sandbox: Sandbox, scratch: Path) -> None:
        scratch.mkdir()
        code = "import time; t = time.perf_counter(); import numpy, pandas, sklearn; print(time.perf_counter() - t)"
        script = 'while read -r _; do "$1" -c "$2" </dev/null; done'
        command = ["/bin/sh", "-e", "-c", script, "sh", f"{sandbox.root}/bin/python", code]
        pipe = subprocess.PIPE
        self._shell = subprocess.Popen(sandbox.command(command, str(scratch)), stdin=pipe, stdout=pipe, text=True)
        self.times: list[float] = []

    def once(self) -> None:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write("again\n")
        self._shell.stdin.flush()
        self.times.append(float(self._shell.stdout.readline()))

    def close(self) -> None:
        self._shell.communicate()


if __name__ == "__main__":
    sys.exit(main())
