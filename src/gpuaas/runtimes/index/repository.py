"""The publisher's side: a directory that any web server or disk can carry to others.

metadata/   N.root.json, N.targets.json, N.snapshot.json, timestamp.json: signed by enough of their keys
targets/    <bundle>/<version>/<sha256>.<architecture>.tar: what `gpuaas runtime export` writes
waiting/    root.json, targets.json: what was changed, with the signatures so far. No mirror needs it

Every change writes a draft; `sign` adds signatures, from one machine or from several, and publishes what has enough.
"""

import fcntl
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from securesystemslib.signer import CryptoSigner, Key
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Role, Root, Snapshot, T, TargetFile, Targets, Timestamp
from tuf.api.serialization.json import JSONSerializer

from gpuaas.kit.errors import Problem, conflict, invalid
from gpuaas.runtimes import bundlefile
from gpuaas.runtimes.index.entry import Entry, entries, path
from gpuaas.runtimes.shelf import Shelf, write
from gpuaas.runtimes.verify import manifest_of

VALID_DAYS = {"root": 365, "targets": 180, "freshness": 14}
_WRITTEN = JSONSerializer(compact=False)  # people read it too


@dataclass(frozen=True)
class Holders:
    """The keys of a role, and how many of them it takes."""

    keys: Sequence[Key]
    threshold: int = 1


@dataclass(frozen=True)
class Outcome:
    published: tuple[str, ...]
    waits: tuple[str, ...]  # for whom, in words


class Repository:
    def __init__(self, directory: Path) -> None:
        self.path = directory

    def root(self) -> Metadata[Root] | None:
        """The newest that is published."""
        return self._newest("root", Root)

    def targets(self) -> Metadata[Targets] | None:
        return self._newest("targets", Targets)

    def snapshot(self) -> Metadata[Snapshot] | None:
        return self._newest("snapshot", Snapshot)

    def timestamp(self) -> Metadata[Timestamp] | None:
        return _load(self.path / "metadata" / "timestamp.json", Timestamp)

    def _newest(self, role: str, kind: type[T]) -> Metadata[T] | None:
        numbers = [int(file.name.split(".")[0]) for file in (self.path / "metadata").glob(f"[0-9]*.{role}.json")]
        return _load(self.path / "metadata" / f"{max(numbers)}.{role}.json", kind) if numbers else None

    def waiting(self, role: str, kind: type[T]) -> Metadata[T] | None:
        return _load(self.path / "waiting" / f"{role}.json", kind)

    def draft(self, role: str, document: Metadata[T]) -> None:
        write(self.path / "waiting" / f"{role}.json", document.to_bytes(_WRITTEN))

    def publish(self, name: str, document: Metadata[T]) -> None:
        write(self.path / "metadata" / name, document.to_bytes(_WRITTEN))

    def listed(self) -> list[Entry]:
        """As of the last change, signed or not."""
        found = self.waiting("targets", Targets) or self.targets()
        return [] if found is None else entries(found.signed)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One at a time."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with (self.path / ".lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise invalid(f"{error.filename or self.path}: {error.strerror or error}.") from error


def create(directory: Path, roles: dict[str, Holders], now: datetime, valid_days: int | None = None) -> Repository:
    """`roles`: root, bundles and freshness. Nothing counts before it is signed."""
    repository = Repository(directory)
    with repository.changing():
        if repository.root() or repository.waiting("root", Root):
            raise conflict("already_here", f"{directory} holds an index already.", "Change it with `index rotate`.")
        root = Root(version=1, expires=_until(now, "root", valid_days), consistent_snapshot=True)
        _give(root, roles)
        repository.draft("targets", Metadata(Targets(version=1, expires=_until(now, "targets"))))
        repository.draft("root", Metadata(root))
    return repository


def rotate(repository: Repository, roles: dict[str, Holders], now: datetime, valid_days: int | None = None) -> None:
    """Another root, with other keys for these roles. What those who lost theirs have signed counts no longer."""
    with repository.changing():
        before = _there(repository)
        root = Root.from_dict(before.signed.to_dict())
        root.version, root.expires = before.signed.version + 1, _until(now, "root", valid_days)
        _give(root, roles)
        repository.draft("root", Metadata(root))
        if "bundles" in roles and (targets := repository.waiting("targets", Targets) or repository.targets()):
            _draft_targets(repository, targets.signed, now)


def _give(root: Root, roles: dict[str, Holders]) -> None:
    for name, holders in roles.items():
        ids = [key.keyid for key in holders.keys]
        if len(set(ids)) != len(ids):
            raise invalid(
                f"A key is there twice for {name}.", "Each counts once; give every holder a key of their own."
            )
        if not 1 <= holders.threshold <= len(ids):
            said = f"{holders.threshold} of {len(ids)} keys cannot sign for {name}."
            raise invalid(said, "The threshold is at least 1, and at most the number of keys.")
        for role in _TUF[name]:
            root.roles[role] = Role(ids, holders.threshold)
        root.keys |= {key.keyid: key for key in holders.keys}
    used = {id for role in root.roles.values() for id in role.keyids}
    root.keys = {id: key for id, key in root.keys.items() if id in used}


_TUF = {"root": ("root",), "bundles": ("targets",), "freshness": ("snapshot", "timestamp")}


def add(
    repository: Repository, shelf: Shelf, names: Iterable[tuple[str, str]], now: datetime, valid_days: int | None = None
) -> list[Entry]:
    """What is built here, for every architecture, into the index: checked byte for byte before it is offered."""
    with repository.changing():
        targets = _changeable(repository)
        wanted = [(*name, architecture) for name in names for architecture in shelf.builds(*name) or [""]]
        for bundle, version, architecture in wanted:
            manifest, place = manifest_of(bundle, version, shelf, architecture)
            named = path(bundle, version, manifest.architecture)
            made = repository.path / "targets" / f".{bundle}-{version}.tar"
            made.parent.mkdir(parents=True, exist_ok=True)
            bundlefile.export(bundle, version, shelf, made, architecture)
            file = TargetFile.from_file(named, str(made), ["sha256"])
            file.unrecognized_fields["custom"] = {
                "image": manifest.layers[0].sha256,
                "manifest": hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest(),
                "default": manifest.recipe.default,
            }
            known = targets.targets.get(named)
            if known is not None and known.hashes != file.hashes:
                made.unlink()
                said = f"Another content of {manifest.id} is in this index."
                raise conflict("already_there", said, "A version has one content; publish yours as another version.")
            final = repository.path / "targets" / carried(file)
            final.parent.mkdir(parents=True, exist_ok=True)
            made.rename(final)
            targets.targets[named] = file
        return entries(_draft_targets(repository, targets, now, valid_days))


def remove(repository: Repository, names: Iterable[tuple[str, str]], now: datetime) -> list[Entry]:
    with repository.changing():
        targets = _changeable(repository)
        gone = {path(each.bundle, each.version, each.architecture) for each in entries(targets)
                if (each.bundle, each.version) in set(names)}  # fmt: skip
        targets.targets = {named: file for named, file in targets.targets.items() if named not in gone}
        return entries(_draft_targets(repository, targets, now))


def carried(file: TargetFile) -> str:
    """Where a file lies: a mirror that is half copied has the old or the new one, never a mixture."""
    place, _, name = file.path.rpartition("/")
    return f"{place}/{file.hashes['sha256']}.{name}"


def _changeable(repository: Repository) -> Targets:
    found = repository.waiting("targets", Targets) or repository.targets()
    if found is None:
        raise _none(repository)
    return found.signed


def _draft_targets(repository: Repository, targets: Targets, now: datetime, valid_days: int | None = None) -> Targets:
    published = repository.targets()
    version = 1 if published is None else published.signed.version + 1
    targets.version, targets.expires = version, _until(now, "targets", valid_days)
    repository.draft("targets", Metadata(targets))
    return targets


def sign(
    repository: Repository, signers: Sequence[CryptoSigner], now: datetime, valid_days: int | None = None
) -> Outcome:
    """Signs all that waits for one of these keys, publishes what has enough, and says that it is fresh if it may."""
    with repository.changing():
        _known(repository, signers)
        published, waits = _sign_root(repository, signers), []
        root = repository.root()
        draft = repository.waiting("root", Root)
        if draft is not None:
            result = draft.signed.get_root_verification_result(
                None if root is None else root.signed, draft.signed_bytes, draft.signatures
            )
            waits += [f"root {draft.signed.version}: {missing}" for missing in
                      dict.fromkeys(_missing(each.missing, each.unsigned) for each in (result.first, result.second))
                      if missing]  # fmt: skip
        if root is None:
            return Outcome(tuple(published), tuple(waits))
        published += _sign_targets(repository, signers, root.signed)
        if (targets := repository.waiting("targets", Targets)) is not None:
            asked = root.signed.get_verification_result("targets", targets.signed_bytes, targets.signatures)
            waits.append(f"bundles {targets.signed.version}: {_missing(asked.missing, asked.unsigned)}")
        fresh = _freshen(repository, signers, root.signed, now, valid_days)
        if not fresh and _stale(repository, root.signed):
            role = root.signed.roles["timestamp"]
            waits.append(f"freshness: {_missing(role.threshold, {id: root.signed.keys[id] for id in role.keyids})}")
        return Outcome((*published, *fresh), tuple(waits))


def _known(repository: Repository, signers: Sequence[CryptoSigner]) -> None:
    documents = [each for each in (repository.root(), repository.waiting("root", Root)) if each is not None]
    if not documents:
        raise _none(repository)
    known = {id for document in documents for id in document.signed.keys}
    for signer in signers:
        if signer.public_key.keyid not in known:
            said = f"The key {signer.public_key.keyid[:12]} signs nothing in this index."
            raise invalid(said, "See `gpuaas runtime index show`; other keys come in with `index rotate`.")


def _missing(count: int, unsigned: dict[str, Key]) -> str:
    return f"{count} more of the keys {', '.join(sorted(id[:12] for id in unsigned))}" if count else ""


def _sign_root(repository: Repository, signers: Sequence[CryptoSigner]) -> list[str]:
    draft, before = repository.waiting("root", Root), repository.root()
    if draft is None:
        return []
    waiting = repository.path / "waiting" / "root.json"
    if before is not None and draft.signed.version <= before.signed.version:
        waiting.unlink()  # it was published, and whoever did so was killed before this
        return []
    old = set() if before is None else set(before.signed.roles["root"].keyids)
    _add(draft, signers, old | set(draft.signed.roles["root"].keyids))
    previous = None if before is None else before.signed
    if not draft.signed.get_root_verification_result(previous, draft.signed_bytes, draft.signatures):
        repository.draft("root", draft)
        return []
    repository.publish(f"{draft.signed.version}.root.json", draft)
    waiting.unlink()
    return [f"root {draft.signed.version}"]


def _sign_targets(repository: Repository, signers: Sequence[CryptoSigner], root: Root) -> list[str]:
    draft, before = repository.waiting("targets", Targets), repository.targets()
    if draft is None:
        return []
    waiting = repository.path / "waiting" / "targets.json"
    if before is not None and draft.signed.version <= before.signed.version:
        waiting.unlink()
        return []
    _add(draft, signers, set(root.roles["targets"].keyids))
    if not root.get_verification_result("targets", draft.signed_bytes, draft.signatures):
        repository.draft("targets", draft)
        return []
    repository.publish(f"{draft.signed.version}.targets.json", draft)
    waiting.unlink()
    return [f"bundles {draft.signed.version}"]


def _add(document: Metadata[T], signers: Sequence[CryptoSigner], ids: set[str]) -> None:
    for signer in signers:
        if signer.public_key.keyid in ids:
            document.sign(signer, append=True)


def _freshen(
    repository: Repository, signers: Sequence[CryptoSigner], root: Root, now: datetime, valid_days: int | None
) -> list[str]:
    role, targets = root.roles["timestamp"], repository.targets()
    mine = [signer for signer in signers if signer.public_key.keyid in role.keyids]
    if targets is None or len({signer.public_key.keyid for signer in mine}) < role.threshold:
        return []
    expires = _until(now, "freshness", valid_days)
    before, last = repository.snapshot(), repository.timestamp()
    there = (repository.path / "metadata" / f"{targets.signed.version}.targets.json").read_bytes()
    listed = MetaFile.from_data(targets.signed.version, there, ["sha256"])
    snapshot = Metadata(Snapshot(version=1 if before is None else before.signed.version + 1, expires=expires))
    snapshot.signed.meta["targets.json"] = listed
    _add(snapshot, mine, set(role.keyids))
    seen = MetaFile.from_data(snapshot.signed.version, snapshot.to_bytes(_WRITTEN), ["sha256"])
    timestamp = Metadata(Timestamp(version=1 if last is None else last.signed.version + 1, expires=expires))
    timestamp.signed.snapshot_meta = seen
    _add(timestamp, mine, set(role.keyids))
    repository.publish(f"{snapshot.signed.version}.snapshot.json", snapshot)
    repository.publish("timestamp.json", timestamp)  # the last: from here on clients see all of it
    _tidy(repository, targets.signed)
    return [f"freshness {timestamp.signed.version}"]


def _stale(repository: Repository, root: Root) -> bool:
    """Whether what clients see is not what was signed last."""
    targets, snapshot = repository.targets(), repository.snapshot()
    if targets is None or snapshot is None:
        return targets is not None
    signed = root.get_verification_result("snapshot", snapshot.signed_bytes, snapshot.signatures)
    return not signed or snapshot.signed.meta["targets.json"].version != targets.signed.version


def _tidy(repository: Repository, targets: Targets) -> None:
    """Files that no index names any more."""
    draft = repository.waiting("targets", Targets)
    kept = {carried(file) for each in (targets, draft.signed if draft else targets) for file in each.targets.values()}
    for file in (repository.path / "targets").glob("*/*/*.tar"):
        if str(file.relative_to(repository.path / "targets")) not in kept:
            file.unlink()


def _until(now: datetime, what: str, days: int | None = None) -> datetime:
    return (now + timedelta(days=VALID_DAYS[what] if days is None else days)).replace(microsecond=0)


def _there(repository: Repository) -> Metadata[Root]:
    found = repository.root()
    if found is None:
        raise _none(repository)
    return found


def _none(repository: Repository) -> Problem:
    said = f"{repository.path} holds no index yet, or nobody has signed its root."
    return Problem("not_found", 404, said, "Make one with `gpuaas runtime index create`, and sign it.")


def _load(file: Path, kind: type[T]) -> Metadata[T] | None:
    try:
        found = Metadata[T].from_bytes(file.read_bytes())
    except FileNotFoundError:
        return None
    except (RepositoryError, OSError) as error:
        raise Problem(
            "damaged", 409, f"{file} cannot be read: {error}.", "Take it from a copy of the index."
        ) from error
    if not isinstance(found.signed, kind):
        raise Problem("damaged", 409, f"{file} is something else than its name says.", "Take it from a copy.")
    return found
