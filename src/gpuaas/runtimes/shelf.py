"""Everything that builds keep on this machine, below one directory. Files appear complete, under their final name.

artifacts/<algorithm>-<digest>            what was fetched
bases/<digest>/                           the base that builds run on, unpacked
locks/<bundle>/<version>-<arch>.json      what the last build of a version was locked to
images/<sha256>.erofs
bundles/<bundle>/<version>/<sha256>/      manifest.json, lock.json, sbom.json, files.json, SHA256SUMS, build.log
bundles/<bundle>/<version>/built-<arch>   the sha256 of the latest image; `built` where an older gpuaas wrote it
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
from typing import NamedTuple

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import tools


class Build(NamedTuple):
    bundle: str
    version: str
    architecture: str
    sha256: str


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

    def builds(self, bundle: str, version: str) -> dict[str, str]:
        """The sha256 of the latest image of a version that was built or taken in here, for each architecture.

        Empty where the note names no image.
        """
        place, found = self.bundle(bundle, version), {}
        if (before := _noted(place / "built")) is not None:
            found[_architecture(place / before)] = before
        for file in sorted(place.glob("built-*")):
            found[file.name.removeprefix("built-")] = _noted(file) or ""
        return found

    def built(self, bundle: str, version: str, architecture: str = "") -> str | None:
        """For this architecture. Where none is said, for that of this machine, or the only one that is here."""
        found = self.builds(bundle, version)
        if not architecture and len(found) == 1:
            (architecture,) = found
        return found.get(architecture or tools.here()) or None

    def all_built(self) -> list[Build]:
        """Also what has a note that names no image."""
        places = sorted({file.parent for file in (self.path / "bundles").glob("*/*/built*")})
        return [
            Build(place.parent.name, place.name, architecture, sha256)
            for place in places
            for architecture, sha256 in sorted(self.builds(place.parent.name, place.name).items())
        ]

    def note(self, build: Build) -> None:
        """All of it is here, so that it is the latest from now on."""
        place = self.bundle(build.bundle, build.version)
        write(place / f"built-{build.architecture}", f"{build.sha256}\n".encode())
        before = _noted(place / "built")
        if before is not None and _architecture(place / before) == build.architecture:
            (place / "built").unlink()
            sync_directory(place)

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


class _Manifest(msgspec.Struct):
    architecture: str


def _architecture(papers: Path) -> str:
    """What a build is for that was noted without saying so."""
    try:
        return msgspec.json.decode((papers / "manifest.json").read_bytes(), type=_Manifest).architecture
    except (OSError, msgspec.DecodeError, UnicodeError):
        return tools.here()


def _noted(file: Path) -> str | None:
    try:
        noted = file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
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


def not_built(spec: str, architecture: str = "") -> Problem:
    said = f"{spec} is not built on this machine{f' for {architecture}' if architecture else ''}."
    return Problem("not_built", 404, said, f"Run `gpuaas runtime build {spec}`.")
