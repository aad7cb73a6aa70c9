"""Whether a runtime on the shelf is what its manifest says, and whether it works."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import tools, tree, untrusted
from gpuaas.runtimes.build import checks
from gpuaas.runtimes.build.base import base_of, ensure_base
from gpuaas.runtimes.build.fetch import fetch
from gpuaas.runtimes.intact import CHANGED, findings
from gpuaas.runtimes.lock.lockfile import Lock
from gpuaas.runtimes.manifest import Manifest, decode
from gpuaas.runtimes.shelf import Shelf, not_built


class Verdict(Struct, frozen=True):
    runtime: str
    sha256: str
    intact: bool
    findings: tuple[str, ...] = ()
    architecture: str = ""


def manifest_of(bundle: str, version: str, shelf: Shelf, architecture: str = "") -> tuple[Manifest, Path]:
    """Of the latest build, and the directory with all that describes it."""
    sha256 = shelf.built(bundle, version, architecture)
    if sha256 is None:
        raise not_built(f"{bundle}:{version}", architecture)
    place = shelf.bundle(bundle, version) / sha256
    try:
        return decode(_paper(place, "manifest.json")), place
    except Problem as problem:
        raise damaged(f"{bundle}:{version}", problem.message.rstrip(".")) from problem


def verify(bundle: str, version: str, shelf: Shelf, architecture: str = "") -> Verdict:
    """Hashes the image and its papers again. Which files are damaged is found out only when something is."""
    runtime, builds = f"{bundle}:{version}", shelf.builds(bundle, version)
    sha256 = shelf.built(bundle, version, architecture)
    if sha256 is None and "" in builds.values():
        return Verdict(runtime, "", False, ("the note `built` names no image",), architecture)
    if sha256 is None:
        raise not_built(runtime, architecture)
    place = shelf.bundle(bundle, version) / sha256
    found = findings(place, shelf)
    if CHANGED in found:
        found += _damaged(shelf.image(sha256), place, shelf)
    known = next(known for known, image in builds.items() if image == sha256)
    return Verdict(runtime, sha256, not found, tuple(found), known)


def sound(bundle: str, version: str, shelf: Shelf, architecture: str = "") -> str:
    """The sha256 of its image; refused where that, or a paper, is damaged."""
    verdict = verify(bundle, version, shelf, architecture)
    if not verdict.intact:
        raise damaged(verdict.runtime, verdict.findings[0])
    return verdict.sha256


def damaged(runtime: str, finding: str) -> Problem:
    hint = f"Run `gpuaas runtime build {runtime}`."
    return Problem("damaged_image", 409, f"{runtime} is damaged: {finding}.", hint)


def _paper(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except OSError as error:
        raise Problem("refused_content", 422, f"{name} cannot be read: {error.strerror}.") from error


def _damaged(image: Path, place: Path, shelf: Shelf) -> list[str]:
    """Up to ten files that are not what they were. The image is suspect: it is not mounted."""
    try:
        listed = msgspec.json.decode((place / "files.json").read_bytes(), type=list[tree.Entry])
    except (OSError, msgspec.DecodeError, UnicodeError):
        return []  # a finding of its own
    wanted = {each.path: each for each in listed}
    with shelf.workspace() as work:
        target = work / "tree"
        target.mkdir()
        try:
            untrusted.unpack(image, target, image.stat().st_size * 16, len(wanted))
            now = {each.path: each for each in tree.examine(target)}
        except Problem as problem:
            return [problem.message]
    return [f"{path} differs" for path in sorted(wanted) if _content(now.get(path)) != _content(wanted[path])][:10]


def _content(entry: tree.Entry | None) -> tuple[str, str, str] | None:
    return None if entry is None else (entry.kind, entry.sha256, entry.target)


def test(bundle: str, version: str, shelf: Shelf, say: Callable[[str, int | None], None]) -> Manifest:
    """Runs the checks of the recipe in the image, as the build did."""
    manifest, place = manifest_of(bundle, version, shelf, tools.architecture())
    try:
        lock = msgspec.json.decode(_paper(place, "lock.json"), type=Lock)
    except (Problem, msgspec.DecodeError, UnicodeError) as error:
        raise damaged(manifest.id, "lock.json cannot be read") from error
    with shelf.workspace() as work:
        if not base_of(lock.base, shelf).exists():
            fetch(lock.base, shelf, say)
        base = ensure_base(lock.base, shelf, work)
        image, entries = shelf.image(manifest.layers[0].sha256), (manifest.tree_bytes, manifest.entries)
        checks.in_image(manifest.recipe, image, entries, base, work, None, say)
    return manifest
