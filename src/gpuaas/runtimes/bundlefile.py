"""A runtime in one file, to carry between machines: written from the shelf, and taken in again after every check.

A plain tar with exactly these members, in this order: manifest.json, lock.json, sbom.json, files.json, image.erofs.
What comes in was made by anybody. It is compared with its own manifest down to each file, in user space; the kernel
never mounts it before. A refused one leaves nothing behind.
"""

import hashlib
import os
import tarfile
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import activate, intact, schema, tree, untrusted
from gpuaas.runtimes.build.precheck import noticing_a_full_disk
from gpuaas.runtimes.lock.lockfile import Lock, lock_digest
from gpuaas.runtimes.manifest import Manifest, decode
from gpuaas.runtimes.shelf import Build, Shelf, settle
from gpuaas.runtimes.tree import LIMITS, Entry, Limits, refused
from gpuaas.runtimes.verify import manifest_of, sound

_PAPERS = {"manifest.json": 4 * 2**20, "lock.json": 16 * 2**20, "sbom.json": 16 * 2**20, "files.json": 256 * 2**20}
_IMAGE = "image.erofs"
_EPOCH = 0


class Wanted(Struct, frozen=True):
    """Which runtime was asked for: a file that holds another one is refused, however sound it is."""

    bundle: str
    version: str
    architecture: str
    image: str  # sha256


def export(bundle: str, version: str, shelf: Shelf, target: Path, architecture: str = "") -> Manifest:
    sha256 = sound(bundle, version, shelf, architecture)
    manifest, place = manifest_of(bundle, version, shelf, architecture)
    made = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        with tarfile.open(made, "w", format=tarfile.USTAR_FORMAT) as archive:
            for name in _PAPERS:
                _member(archive, name, place / name)
            _member(archive, _IMAGE, shelf.image(sha256))
        settle(made, target)
    finally:
        made.unlink(missing_ok=True)
    return manifest


def _member(archive: tarfile.TarFile, name: str, file: Path) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = file.stat().st_size, _EPOCH, 0o644
    with file.open("rb") as content:
        archive.addfile(info, content)


def take_in(file: Path, shelf: Shelf, limits: Limits = LIMITS, wanted: Wanted | None = None) -> Manifest:
    shelf.make()
    full = partial(noticing_a_full_disk, shelf.path)
    with full(), shelf.workspace() as work, full():  # also where not even the workspace has room
        papers, image = _read(file, work, limits)
        manifest = decode(papers["manifest.json"])
        if wanted is not None:
            _is_wanted(manifest, wanted)
        _papers_agree(manifest, papers)
        entries = _files(papers["files.json"])
        _image_agrees(manifest, image, entries, work, limits)
        place = shelf.bundle(manifest.bundle, manifest.version)
        sha256 = manifest.layers[0].sha256
        builds = shelf.builds(manifest.bundle, manifest.version)
        for architecture, present in builds.items():
            # Papers lie by the image's digest: one that is here for another architecture would lose its own.
            if present and (architecture == manifest.architecture) is not (present == sha256):
                said = f"Another build of {manifest.id} is here for {architecture}: {present}."
                raise Problem("already_here", 409, said, "A version has one content; give yours another version.")
        settle(image, shelf.image(sha256))
        intact.keep(papers, place / sha256)
        shelf.note(Build(manifest.bundle, manifest.version, manifest.architecture, sha256))
    return manifest


def _is_wanted(manifest: Manifest, wanted: Wanted) -> None:
    found = Wanted(manifest.bundle, manifest.version, manifest.architecture, manifest.layers[0].sha256)
    if found != wanted:
        said = f"The file holds {manifest.id} for {manifest.architecture}, with the image {found.image[:12]}."
        asked = f"{wanted.bundle}:{wanted.version} for {wanted.architecture}, with the image {wanted.image[:12]}"
        hint = f"Nothing of it was kept. Asked for was {asked}."
        raise Problem("wrong_bundle", 409, said, hint)


def _read(file: Path, work: Path, limits: Limits) -> tuple[dict[str, bytes], Path]:
    papers: dict[str, bytes] = {}
    expected = [*_PAPERS, _IMAGE]
    image = work / "image"
    try:
        # Never through a decompressor: what is read is never more than what is there.
        with file.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                name = expected.pop(0) if expected else "the end"
                if member.name != name or not member.isreg() or member.issparse() or member.pax_headers:
                    raise refused(ascii(member.name), f"in its place must be {name}, a plain file")
                if member.size > _PAPERS.get(name, limits.file_bytes):
                    raise refused(name, f"it is larger than {_PAPERS.get(name, limits.file_bytes)} bytes")
                content = archive.extractfile(member)
                assert content is not None
                if name == _IMAGE:
                    _copy(content, image)
                else:
                    papers[name] = content.read()
    except (tarfile.TarError, EOFError, ValueError, OverflowError, UnicodeError) as error:
        raise refused(file.name, f"it is no runtime: {error}") from error
    except OSError as error:
        raise Problem("refused_content", 422, f"{file}: {error.strerror or error}.") from error
    if expected:
        raise refused(file.name, f"{expected[0]} is missing")
    return papers, image


def _copy(content: IO[bytes], image: Path) -> None:
    with image.open("xb") as out:
        while data := content.read(1 << 20):
            out.write(data)


def _papers_agree(manifest: Manifest, papers: dict[str, bytes]) -> None:
    recipe_is_sound(manifest)
    for name, wanted in (("files.json", manifest.files), ("sbom.json", manifest.sbom)):
        if hashlib.sha256(papers[name]).hexdigest() != wanted:
            raise refused(name, "it is not the one that the manifest names")
    try:
        lock = msgspec.json.decode(papers["lock.json"], type=Lock)
        components = msgspec.json.decode(papers["sbom.json"])["components"]
        listed = {(each["name"], each["version"]) for each in components}
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, TypeError) as error:
        raise refused("lock.json or sbom.json", f"it cannot be read: {error}") from error
    if lock_digest(lock) != manifest.lock or (lock.runtime, lock.architecture) != (manifest.id, manifest.architecture):
        raise refused("lock.json", "it is not the one that the manifest names")
    if listed != {(each.name, each.version) for each in lock.artifacts}:
        raise refused("sbom.json", "it does not list what the lock names")


def recipe_is_sound(manifest: Manifest) -> None:
    """It did not pass through the schema here, and its values end up in shells and mounts."""
    recipe = manifest.recipe
    if findings := untrusted.findings(recipe):
        raise refused("manifest.json", f"its recipe is not sound: {findings[0]}")
    if manifest.architecture not in recipe.requirements.architectures or recipe.parents:
        raise refused("manifest.json", "its recipe does not belong to it")
    if not schema.SHA256.fullmatch(manifest.layers[0].sha256):
        raise refused("manifest.json", "its layer has no digest")


def _files(data: bytes) -> list[Entry]:
    try:
        return msgspec.json.decode(data, type=list[Entry])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise refused("files.json", f"it cannot be read: {error}") from error


def _image_agrees(manifest: Manifest, image: Path, entries: list[Entry], work: Path, limits: Limits) -> None:
    layer = manifest.layers[0]
    with image.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != layer.sha256 or image.stat().st_size != layer.size:
            raise refused(_IMAGE, "it is not the one that the manifest names")
    promised = sum(each.size for each in entries)
    if promised != manifest.tree_bytes or len(entries) != manifest.entries:
        raise refused("files.json", "it does not have the size that the manifest says")
    if promised > limits.total_bytes or len(entries) > limits.entries:
        raise refused("files.json", "it is too large")
    target = work / "tree"
    target.mkdir()
    untrusted.unpack(image, target, promised, len(entries))
    if tree.examine(target, limits, unique_names=True) != entries:
        raise refused("files.json", "it does not list what is in the image")
    script = target / activate.FILE
    if not script.is_file() or script.read_text(errors="replace") != activate.script(manifest.recipe):
        raise refused(activate.FILE, "it is not the one that the recipe gives")
