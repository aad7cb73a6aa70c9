"""The operator's side: mirrors whose root was pinned here, and what was seen there last.

<shelf>/sources/<name>/source.json    where the mirror is
<shelf>/sources/<name>/root.json      the root that somebody who trusts it has pinned; never taken from the mirror
<shelf>/sources/<name>/seen/          the newest index that was seen and found good: what is older is refused

`tuf` decides what is trusted. Here is where its words become ours, and where what it lets through is compared with
what was asked for.
"""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root, Targets
from tuf.api.serialization import DeserializationError
from tuf.ngclient import Updater

from gpuaas.kit.errors import Problem, conflict, invalid
from gpuaas.runtimes import bundlefile
from gpuaas.runtimes.index.entry import Entry, entries
from gpuaas.runtimes.index.transport import Mirror, Told
from gpuaas.runtimes.lock import web
from gpuaas.runtimes.manifest import Manifest
from gpuaas.runtimes.resolve import Name, resolve
from gpuaas.runtimes.shelf import Shelf, remove_tree, sync_directory, write
from gpuaas.runtimes.tree import LIMITS
from gpuaas.runtimes.verify import manifest_of, verify

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PLACE = re.compile(r"(https?|file)://[^\s'\"\\?#]{1,1000}")
_MOST_ROOT_BYTES = 512 * 1000  # as tuf has it


class Source(Struct, frozen=True):
    name: str
    place: str  # https://..., or file:///...


class Index(Struct, frozen=True):
    """What a source has to offer, verified."""

    source: Source
    entries: tuple[Entry, ...]
    root_version: int
    version: int


def place_of(said: str) -> str:
    """An address, or a directory of this machine as one."""
    place = said if "://" in said else Path(said).absolute().as_uri()
    if not _PLACE.fullmatch(place):
        raise invalid(f"{said!r} is neither an address nor a directory.", "Use https:// or a path.")
    return place.rstrip("/")


def add(shelf: Shelf, name: str, place: str, root: bytes) -> Metadata[Root]:
    """Trusts what this root names, from here on. Whoever calls this got the root by a way that no mirror controls."""
    if not _NAME.fullmatch(name):
        raise invalid(f"{name!r} is no name for a source.", "Use lower-case letters, digits and dashes.")
    pinned = read_root(root)
    directory = _directory(shelf, name)
    if (directory / "source.json").exists():
        said = f"A source {name} is pinned here already."
        raise conflict("already_here", said, f"`gpuaas runtime source remove {name}` forgets it, and whom it trusts.")
    write(directory / "root.json", root)
    write(directory / "source.json", msgspec.json.encode({"place": place_of(place)}))
    return pinned


def read_root(data: bytes) -> Metadata[Root]:
    hint = "Pin N.root.json as its publisher gave it to you."
    try:
        found = Metadata[Root].from_bytes(data[: _MOST_ROOT_BYTES + 1])
        if not isinstance(found.signed, Root):
            raise invalid("That is no root of an index.", hint)
        found.signed.verify_delegate("root", found.signed_bytes, found.signatures)
    except exceptions.UnsignedMetadataError as error:
        raise invalid(f"That root is not signed by enough of its own keys: {error}.", hint) from error
    except (exceptions.RepositoryError, ValueError) as error:
        raise invalid(f"That is no root of an index: {error}.", hint) from error
    return found


def move(shelf: Shelf, name: str, place: str) -> Source:
    """Another mirror of the same: whom it trusts and what was seen stay."""
    find(shelf, name)
    moved = Source(name, place_of(place))
    write(_directory(shelf, name) / "source.json", msgspec.json.encode({"place": moved.place}))
    return moved


def remove(shelf: Shelf, name: str) -> None:
    find(shelf, name)
    directory = _directory(shelf, name)
    (directory / "source.json").unlink()  # from here on it is gone; the rest is of no use to anybody
    remove_tree(directory)


def every(shelf: Shelf) -> list[Source]:
    found = []
    for file in sorted((shelf.path / "sources").glob("*/source.json")):
        found.append(Source(file.parent.name, msgspec.json.decode(file.read_bytes())["place"]))
    return found


def find(shelf: Shelf, said: str) -> Source:
    """By name, or by the place that was pinned. Never anything that was not: there is no trust on first use."""
    known = every(shelf)
    for source in known:
        if source.name == said or ("/" in said and source.place == place_of(said)):
            return source
    names = f"Pinned here: {', '.join(source.name for source in known)}. " if known else ""
    hint = (
        f"{names}Pin it with the root that its publisher gave you: `gpuaas runtime source add NAME PLACE --root FILE`."
    )
    raise Problem("unknown_source", 404, f"{said!r} is not pinned here, so that nothing of it can be trusted.", hint)


def look(shelf: Shelf, source: Source, now: Callable[[], float] = time.monotonic) -> Index:
    """What it offers now, if that is signed, fresh, and not older than what was seen before."""
    shelf.make()
    with shelf.workspace() as work, web.client() as http, _updated(shelf, source, Mirror(http, work, now=now)):
        return _index(shelf, source)


def pull(shelf: Shelf, source: Source, entry: Entry, told: Told = lambda here, most: None) -> Manifest:
    """What the index names, byte for byte, onto the shelf. What is here already stays."""
    build = entry.bundle, entry.version, shelf, entry.architecture
    if shelf.built(entry.bundle, entry.version, entry.architecture) == entry.image and verify(*build).intact:
        return manifest_of(*build)[0]
    shelf.make()
    with shelf.workspace() as work, web.client() as http, _updated(shelf, source, Mirror(http, work, told)) as updater:
        info = updater.get_targetinfo(entry.path)
        if info is None or info.length != entry.length:
            raise conflict("changed_meanwhile", f"{entry.id} has changed in the index.", "Try again.")
        if not 0 < info.length <= LIMITS.file_bytes or 3 * info.length > shutil.disk_usage(work).free:
            said = f"{entry.id} has {info.length} bytes, and there is no room to unpack and check it."
            raise Problem("disk_full", 507, said, f"Make room in {shelf.path}: `gpuaas runtime gc --local`.")
        with _told_in_our_words(source):
            file = Path(updater.download_target(info, str(work / "file.tar")))
        wanted = bundlefile.Wanted(entry.bundle, entry.version, entry.architecture, entry.image)
        return bundlefile.take_in(file, shelf, wanted=wanted)


def chosen(index: Index, spec: str, architecture: str) -> Entry:
    """Never a substitute: an unknown name is refused with the nearest ones that the index has."""
    fits = [entry for entry in index.entries if entry.architecture == architecture]
    name = resolve(spec, [Name(entry.bundle, entry.version, entry.default) for entry in fits])
    return next(entry for entry in fits if (entry.bundle, entry.version) == (name.bundle, name.version))


def _directory(shelf: Shelf, name: str) -> Path:
    return shelf.path / "sources" / name


def _index(shelf: Shelf, source: Source) -> Index:
    seen = _directory(shelf, source.name) / "seen"
    targets = Metadata[Targets].from_file(str(seen / "targets.json")).signed
    root = Metadata[Root].from_file(str(seen / "root.json")).signed
    return Index(source, tuple(entries(targets)), root.version, targets.version)


@contextmanager
def _updated(shelf: Shelf, source: Source, mirror: Mirror) -> Iterator[Updater]:
    """One at a time per source: what was seen is written by one."""
    directory = _directory(shelf, source.name)
    seen = directory / "seen"
    seen.mkdir(exist_ok=True)
    with (directory / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _told_in_our_words(source):
            # Always from the root that was pinned: what lies in `seen` is believed only as far as it follows from that.
            pinned = (directory / "root.json").read_bytes()
            base = f"{source.place}/metadata/", str(seen), f"{source.place}/targets/"
            updater = Updater(str(seen), base[0], base[1], base[2], mirror, bootstrap=pinned)
            updater.refresh()
        _to_disk(seen)
        yield updater


def _to_disk(seen: Path) -> None:
    """What was seen is remembered before anything is used: after a power cut an older index must still be refused."""
    for file in seen.rglob("*.json"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    for directory in (seen / "root_history", seen):
        sync_directory(directory)


@contextmanager
def _told_in_our_words(source: Source) -> Iterator[None]:
    ask = f"Nothing of it was used. Ask whoever runs {source.place}, or take another mirror of the same publisher."
    try:
        yield
    except exceptions.ExpiredMetadataError as error:
        said = f"The index of {source.name} has expired ({error}): it is old, or somebody holds newer ones back."
        hint = "Get a newer copy, or ask its publisher to sign it anew. Is this machine's clock right?"
        raise Problem("index_expired", 409, said, hint) from error
    except exceptions.BadVersionNumberError as error:
        said = f"The index of {source.name} is older than one that was seen before, or mixed from several ({error})."
        raise Problem("index_rolled_back", 409, said, ask) from error
    except exceptions.UnsignedMetadataError as error:
        said = f"The index of {source.name} is not signed by enough of the keys that its root names ({error})."
        raise Problem("index_not_signed", 409, said, ask) from error
    except exceptions.LengthOrHashMismatchError as error:
        said = f"A file of {source.name} is not the one that its index names ({error})."
        raise Problem("wrong_digest", 409, said, ask) from error
    except exceptions.DownloadLengthMismatchError as error:
        raise Problem("too_large", 409, f"{source.name} sends more than its index says ({error}).", ask) from error
    except exceptions.SlowRetrievalError as error:
        raise Problem("too_slow", 503, f"{source.name} sends too slowly ({error}).", ask) from error
    except DeserializationError as error:
        raise Problem("index_not_readable", 409, f"What {source.name} sends is no index ({error}).", ask) from error
    except exceptions.RepositoryError as error:
        raise Problem("index_refused", 409, f"The index of {source.name} is not sound ({error}).", ask) from error
    except exceptions.DownloadError as error:
        said = f"{source.name} does not answer: {error}."
        hint = f"Is {source.place} right? `gpuaas runtime source move {source.name} PLACE` names another mirror of it."
        raise Problem("index_unreachable", 503, said, hint) from error
