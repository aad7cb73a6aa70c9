"""Everything that builds keep on this machine, below one directory. Files appear complete, under their final name.

artifacts/<algorithm>-<digest>            what was fetched
bases/<digest>/                           the base that builds run on, unpacked
locks/<bundle>/<version>-<arch>.json      what the last build of a version was locked to
images/<sha256>.erofs
bundles/<bundle>/<version>/<sha256>/      manifest.json, lock.json, sbom.json, files.json, SHA256SUMS, build.log
bundles/<bundle>/<version>/built          the sha256 of the latest image
logs/                                     of builds that failed
apt/, uv/                                 caches of these programs
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuaas.kit.errors import Problem


class Shelf:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def make(self) -> None:
        for name in ("artifacts", "bases", "locks", "images", "bundles", "logs", "apt", "uv", "work"):
            (self.path / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        (self.path / ".lock").touch()

    def artifact(self, digest: str) -> Path:
        return self.path / "artifacts" / digest.replace(":", "-")

    def image(self, sha256: str) -> Path:
        return self.path / "images" / f"{sha256}.erofs"

    def lock(self, bundle: str, version: str, architecture: str) -> Path:
        return self.path / "locks" / bundle / f"{version}-{architecture}.json"

    def bundle(self, bundle: str, version: str) -> Path:
        return self.path / "bundles" / bundle / version

    def built(self, bundle: str, version: str) -> str | None:
        """The sha256 of the latest image of a version that was built or taken in here."""
        try:
            return _noted(self.bundle(bundle, version) / "built") or None
        except FileNotFoundError:
            return None

    def all_built(self) -> list[tuple[str, str, str]]:
        """Also what has a note that names no image: with an empty sha256."""
        files = sorted((self.path / "bundles").glob("*/*/built"))
        return [(file.parent.parent.name, file.parent.name, _noted(file)) for file in files]

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory on the same file system, gone afterwards. What a killed build has left goes first."""
        work = self.path / "work"
        with (self.path / ".lock").open("a") as used:
            fcntl.flock(used, fcntl.LOCK_SH)  # with others, but not while somebody tidies up
            for left in work.iterdir():
                _remove_abandoned(left)
            directory = Path(tempfile.mkdtemp(dir=work))
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield directory
            finally:
                remove_tree(directory)
                os.close(lock)

    @contextmanager
    def tidying(self) -> Iterator[None]:
        """Nobody builds or takes in anything meanwhile."""
        with (self.path / ".lock").open("a") as used:
            try:
                fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                said = f"Somebody builds or fetches a runtime in {self.path} right now."
                raise Problem("in_progress", 409, said, "Try again when they are done.") from error
            yield

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """One lock is made at a time: apt keeps its state in files."""
        with (self.path / "apt" / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _noted(file: Path) -> str:
    noted = file.read_text(errors="replace").strip()
    return noted if re.fullmatch(r"[0-9a-f]{64}", noted) else ""


def _remove_abandoned(directory: Path) -> None:
    try:
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(directory)
    except BlockingIOError:
        pass  # somebody builds there
    finally:
        os.close(lock)


def remove_tree(directory: Path) -> None:
    """Also directories that their own packages made read-only."""

    def writable(path: str) -> None:
        os.chmod(path, 0o700, follow_symlinks=True)

    if os.geteuid() != 0:
        for where, names, _ in os.walk(directory):
            for name in names:
                if not os.path.islink(os.path.join(where, name)):
                    writable(os.path.join(where, name))
    shutil.rmtree(directory, ignore_errors=True)


def write(path: Path, data: bytes) -> None:
    """Complete or absent, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.rename(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def settle(made: Path, final: Path) -> None:
    """Moves a finished file to its name, after its bytes are on the disk."""
    with made.open("rb") as file:
        os.fsync(file.fileno())
    os.rename(made, final)
    sync_directory(final.parent)


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def not_built(spec: str) -> Problem:
    return Problem("not_built", 404, f"{spec} is not built on this machine.", f"Run `gpuaas runtime build {spec}`.")
