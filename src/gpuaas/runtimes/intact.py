"""Whether an image on the shelf, and the papers that describe it, are as they were kept.

The image has the digest that is its name. What each paper had, also the manifest, is noted in SHA256SUMS beside them;
an earlier version noted none: there they are what the manifest names.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.lock.lockfile import Lock, lock_digest
from gpuaas.runtimes.manifest import decode
from gpuaas.runtimes.shelf import Shelf, sync_directory, write

CHANGED = "the image was changed"
SUMS = "SHA256SUMS"
_PAPERS = ("manifest.json", "lock.json", "sbom.json", "files.json")


def keep(papers: Mapping[str, bytes], place: Path) -> None:
    """A power cut in between leaves papers without sums, never with those of others."""
    place.mkdir(parents=True, exist_ok=True)
    (place / SUMS).unlink(missing_ok=True)
    sync_directory(place)
    for name in _PAPERS:
        write(place / name, papers[name])
    lines = [
        f"{hashlib.sha256(papers[name]).hexdigest()}  {name}\n" for name in _PAPERS
    ]  # `sha256sum -c` reads it, too
    write(place / SUMS, "".join(lines).encode())


def findings(place: Path, shelf: Shelf) -> list[str]:
    """What is not as it was, of the image and of the papers in `place`. Reads all of it."""
    found = _changed(place) or _disagreeing(place)
    sha256, why = _sha256(shelf.image(place.name))
    if sha256 != place.name:
        found.append(f"the image {why}" if why else CHANGED)
    return found


def _changed(place: Path) -> list[str]:
    """Papers that are not there, or not what was noted."""
    noted = None
    try:
        lines = (place / SUMS).read_text(errors="replace").splitlines()
        noted = {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines)}
    except FileNotFoundError:
        pass
    except OSError as error:
        return [f"{SUMS} cannot be read: {error.strerror}"]
    found = []
    for name in _PAPERS:
        sha256, why = _sha256(place / name)
        if why or (noted is not None and noted.get(name) != sha256):
            found.append(f"{name} {why or 'was changed'}")
    return found


def _disagreeing(place: Path) -> list[str]:
    """Papers that do not belong to the manifest, or a manifest that does not belong here."""
    try:
        manifest = decode((place / "manifest.json").read_bytes())
    except Problem as problem:
        return [problem.message.rstrip(".")]
    try:
        lock = lock_digest(msgspec.json.decode((place / "lock.json").read_bytes(), type=Lock))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        lock = ""
    is_now = (("lock.json", lock), *((name, _sha256(place / name)[0]) for name in ("sbom.json", "files.json")))
    wanted = {"lock.json": manifest.lock, "sbom.json": manifest.sbom, "files.json": manifest.files}
    found = [f"{name} was changed" for name, sha256 in is_now if sha256 != wanted[name]]
    if (manifest.bundle, manifest.version) != place.parts[-3:-1]:
        found.append(f"manifest.json describes {manifest.id}")
    if manifest.layers[0].sha256 != place.name:
        found.append("manifest.json names another image than its directory")
    return found


def _sha256(file: Path) -> tuple[str, str]:
    """And why there is none."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest(), ""
    except FileNotFoundError:
        return "", "is missing"
    except OSError as error:
        return "", f"cannot be read: {error.strerror}"
