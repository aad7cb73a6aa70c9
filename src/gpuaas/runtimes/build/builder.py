"""A build from beginning to end. Each phase of `phases.PHASES` is one function; order and reports are here.

The checks of the recipe come last, in the image itself, as machines mount it: neither a fault of mkfs nor one of the
mount passes. That they wait for mkfs, and read what is compressed, makes the end of a build of `python:3.11+ml` a third
longer; two of them at a time, the tree examined beside mkfs and removed beside the checks, give that back.
"""

import hashlib
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from gpuaas import __version__
from gpuaas.kit.errors import Problem
from gpuaas.runtimes import activate, document, intact, tree
from gpuaas.runtimes.build import checks, precheck, wheels
from gpuaas.runtimes.build.base import ensure_base
from gpuaas.runtimes.build.debs import unpack_deb
from gpuaas.runtimes.build.fetch import fetch
from gpuaas.runtimes.build.image import open_to_all, write_image
from gpuaas.runtimes.build.phases import Report, nobody, phase
from gpuaas.runtimes.build.relocate import relocate
from gpuaas.runtimes.build.sandbox import Sandbox
from gpuaas.runtimes.build.sbom import bill
from gpuaas.runtimes.lock.lockfile import FORMAT, Lock, lock_digest, recipe_digest
from gpuaas.runtimes.lock.locking import lock as make_lock
from gpuaas.runtimes.manifest import Layer, Manifest, decode
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.shelf import Build, Shelf, remove_tree, settle, write
from gpuaas.runtimes.unpack import Unpacking, flat, matches

FORMAT_OF_BUILDS = 2  # larger when the same lock gives another image
_BUILT_WITH = f"gpuaas {__version__}, build format {FORMAT_OF_BUILDS}"


class Built(Struct, frozen=True):
    manifest: Manifest
    sha256: str
    seconds: float
    log: str
    new: bool = True  # False: it was there already


def build(
    recipe: Recipe,
    architecture: str,
    settings: Settings,
    shelf: Shelf,
    report: Report = nobody,
    *,
    relock: bool = False,
    again: bool = False,
) -> Built:
    """`recipe` is flat. Uses the lock of an earlier build as long as the recipe says the same, and its image, too,
    unless it shall be made `again`."""
    shelf.make()
    name = f"{recipe.name}-{recipe.version}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}.log"
    log_path = shelf.path / "logs" / name
    with shelf.workspace() as work, log_path.open("ab", buffering=0) as log:  # nothing to be written when it closes
        try:
            with precheck.noticing_a_full_disk(shelf.path):
                return _build(recipe, architecture, settings, shelf, report, work, log, relock=relock, again=again)
        except (Problem, OSError) as error:
            raise _with_log(error, log, log_path) from error


def _with_log(error: Problem | OSError, log: IO[bytes], path: Path) -> Problem:
    if isinstance(error, OSError):
        said = f"{error.filename or path.parent.parent}: {error.strerror or error}."
        error = Problem("build_failed", 500, said, "Look at the disk of the state directory.")
    with suppress(OSError):  # of a disk that is full
        log.write(f"failed: {error.message}\n{error.detail}\n".encode())
    hint = "\n".join(part for part in (error.hint, f"Log: {path}") if part)
    extra = {**error.extra, "log_file": str(path)}
    return Problem(error.code, error.status, error.message, hint, detail=error.detail, extra=extra)


def _build(
    recipe: Recipe,
    architecture: str,
    settings: Settings,
    shelf: Shelf,
    report: Report,
    work: Path,
    log: IO[bytes],
    *,
    relock: bool,
    again: bool,
) -> Built:
    started = time.monotonic()
    with phase("check", report):
        known = None if relock else _known_lock(recipe, architecture, shelf)
        precheck.check(recipe, architecture, settings, shelf.path, locked=known is not None)
    with phase("lock", report) as say:
        with shelf.deciding():
            lock = known or make_lock(recipe, architecture, settings, shelf, work)
            write(shelf.lock(recipe.name, recipe.version, architecture), msgspec.json.encode(lock))
        say(f"{len(lock.artifacts)} artifacts{', as before' if known else ''}", None)
    if not again and (present := _present(recipe, lock, shelf)) is not None:
        Path(log.name).unlink()
        return Built(present, present.layers[0].sha256, time.monotonic() - started, "", new=False)
    with phase("fetch", report) as say:
        precheck.room(shelf.path, 4 * sum(each.size for each in lock.everything) + precheck.LEAST_BYTES)
        fetch(lock.everything, shelf, say)
    return _make(recipe, lock, shelf, work, log, report, started)


def _make(
    recipe: Recipe, lock: Lock, shelf: Shelf, work: Path, log: IO[bytes], report: Report, started: float
) -> Built:
    made = work / "tree"
    with phase("unpack", report) as say:
        base = ensure_base(lock.base, shelf, work)
        tools = ensure_base((*lock.base, *lock.tools), shelf, work) if lock.tools else base
        _unpack(recipe, lock, shelf, made)
        if any(each.kind == "deb" for each in lock.artifacts):
            relocate(made, recipe.root, log, say)
        _link(recipe, made)
    with phase("finish", report) as say:
        _finish(recipe, lock, Sandbox(tools, made, recipe.root), shelf, work, log)
    with phase("compile", report):
        if recipe.python:
            wheels.compile_bytecode(recipe.python, Sandbox(base, made, recipe.root), log)
    open_to_all(made)
    image = work / "image"
    with ThreadPoolExecutor(max_workers=1) as beside:
        with phase("image", report) as say:
            examined = beside.submit(tree.examine, made, unique_names=True)  # as whoever takes it in will
            sha256 = write_image(made, image, lock_digest(lock), log)
            entries = examined.result()
            say(f"{image.stat().st_size / 10**6:.0f} MB", None)
        with phase("verify", report) as say:
            beside.submit(remove_tree, made)  # only the image counts from here on
            size = sum(each.size for each in entries), len(entries)
            checks.in_image(recipe, image, size, base, work, log, say)
    with phase("store", report):
        manifest = _store(recipe, lock, shelf, image, sha256, entries, log)
    return Built(manifest, sha256, time.monotonic() - started, log.name)


def _present(recipe: Recipe, lock: Lock, shelf: Shelf) -> Manifest | None:
    """What this lock gives, when it is here and was read: one that is damaged is made anew."""
    sha256 = shelf.built(recipe.name, recipe.version, lock.architecture)
    if sha256 is None:
        return None
    place = shelf.bundle(recipe.name, recipe.version) / sha256
    try:
        manifest = decode((place / "manifest.json").read_bytes())
    except (OSError, Problem):
        return None
    same = (manifest.lock, manifest.built_with) == (lock_digest(lock), _BUILT_WITH)
    return manifest if same and not intact.findings(place, shelf) else None


def _known_lock(recipe: Recipe, architecture: str, shelf: Shelf) -> Lock | None:
    try:
        lock = msgspec.json.decode(shelf.lock(recipe.name, recipe.version, architecture).read_bytes(), type=Lock)
    except (OSError, msgspec.DecodeError, UnicodeError):
        return None
    return lock if (lock.recipe, lock.format) == (recipe_digest(recipe), FORMAT) else None


def _unpack(recipe: Recipe, lock: Lock, shelf: Shelf, made: Path) -> None:
    unpacking = Unpacking(made, leave_out=recipe.remove)
    for artifact in lock.artifacts:
        file = shelf.artifact(artifact.digest)
        if artifact.kind == "deb":
            unpack_deb(file, unpacking, flat)
        elif artifact.kind == "pypi" or artifact.file.endswith(".zip"):
            if artifact.into:
                unpacking.zip(file, artifact.into)
        else:
            with file.open("rb") as stream:
                unpacking.tar(stream, artifact.into, artifact.strip)


def _link(recipe: Recipe, made: Path) -> None:
    for name, target in recipe.links:
        link = made / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        link.symlink_to(os.path.relpath(target, os.path.dirname(name) or "."))


def _finish(recipe: Recipe, lock: Lock, sandbox: Sandbox, shelf: Shelf, work: Path, log: IO[bytes]) -> None:
    installed = [each for each in lock.artifacts if each.kind == "pypi" and not each.into]
    if installed:
        wheels.install(installed, recipe.python, sandbox, shelf, work, log)
    for script in recipe.run:
        sandbox.shell(script, log, writable=True)
    for path, _ in reversed(list(tree.walk(sandbox.tree))):
        full = sandbox.tree / path
        if path.endswith(".pyc") or (recipe.remove and matches(path, recipe.remove)):
            shutil.rmtree(full) if full.is_dir() and not full.is_symlink() else full.unlink(missing_ok=True)
    _find_named(recipe, sandbox.tree)
    (sandbox.tree / activate.FILE).write_text(activate.script(recipe))
    (sandbox.tree / "runtime.yml").write_text(document.dumps(msgspec.structs.replace(recipe, file="")))


def _find_named(recipe: Recipe, made: Path) -> None:
    """What the recipe promises by name is there: a job that gets a mount without it would miss it only when it runs."""
    for name, _ in recipe.links:
        if not (made / name).exists():
            said = f"The link {name} leads to nothing."
            raise Problem("build_failed", 422, said, "Correct `links:` in the recipe.")
    for mount in recipe.mounts:
        for path in (mount.source, *(f"{mount.source}/{name}" for name in mount.selective)):
            if not (made / path).exists():
                said = f"The mount on {mount.target} names {path}, which the runtime does not have."
                raise Problem("build_failed", 422, said, "Correct `mounts:` in the recipe.")


def _store(
    recipe: Recipe, lock: Lock, shelf: Shelf, image: Path, sha256: str, entries: list[tree.Entry], log: IO[bytes]
) -> Manifest:
    """The image first, then what describes it, then the note that it is there."""
    files, sbom = msgspec.json.encode(entries), msgspec.json.encode(bill(recipe, lock))
    manifest = Manifest(
        recipe.name,
        recipe.version,
        lock.architecture,
        (Layer(sha256, image.stat().st_size),),
        msgspec.structs.replace(recipe, file=""),
        lock_digest(lock),
        hashlib.sha256(files).hexdigest(),
        hashlib.sha256(sbom).hexdigest(),
        sum(each.size for each in entries),
        len(entries),
        _BUILT_WITH,
    )
    settle(image, shelf.image(sha256))
    place = shelf.bundle(recipe.name, recipe.version) / sha256
    papers = {"manifest.json": msgspec.json.encode(manifest), "lock.json": msgspec.json.encode(lock)}
    intact.keep({**papers, "files.json": files, "sbom.json": sbom}, place)
    log.flush()
    write(place / "build.log", Path(log.name).read_bytes())
    shelf.note(Build(recipe.name, recipe.version, lock.architecture, sha256))
    Path(log.name).unlink(missing_ok=True)
    return manifest
