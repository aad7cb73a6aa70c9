"""A publisher of runtimes with keys on several media, and an operator who has pinned their root."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from securesystemslib.signer import CryptoSigner

from gpuaas.runtimes import bundlefile
from gpuaas.runtimes.index import keys, repository, sources
from gpuaas.runtimes.index.repository import Holders, Outcome, Repository
from gpuaas.runtimes.manifest import Manifest
from gpuaas.runtimes.shelf import Shelf
from runtimes.bundle import Bundle

ROOT, BUNDLES, FRESHNESS = ("root-1", "root-2", "root-3"), ("bundles-1", "bundles-2"), ("freshness-1",)


class Publisher:
    """Two of three keys for the root, two for the bundles, one for freshness."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.shelf = Shelf(work / "publisher")
        self.directory = work / "mirror"
        self._keys = work / "keys"
        self._keys.mkdir(parents=True)
        for name in (*ROOT, *BUNDLES, *FRESHNESS):
            self.key(name)
        roles = {
            "root": self.holders(ROOT, 2),
            "bundles": self.holders(BUNDLES, 2),
            "freshness": self.holders(FRESHNESS),
        }
        self.repository = repository.create(self.directory, roles, datetime.now(UTC))

    def key(self, name: str) -> CryptoSigner:
        if not (self._keys / name).exists():
            keys.make(self._keys / name)
        return keys.signer(self._keys / name)

    def holders(self, names: tuple[str, ...], threshold: int = 1) -> Holders:
        return Holders([self.key(name).public_key for name in names], threshold)

    def sign(self, *names: str, at: datetime | None = None) -> Outcome:
        """By all of them, unless some are named."""
        signers = [self.key(name) for name in names or (*ROOT, *BUNDLES, *FRESHNESS)]
        return repository.sign(self.repository, signers, at or datetime.now(UTC))

    def build(self, name: str, version: str) -> None:
        made = Bundle(self.work / "build" / f"{name}-{version}", name, version)
        bundlefile.take_in(made.write(self.work / f"{name}-{version}.tar"), self.shelf)

    def add(self, name: str, version: str) -> None:
        if self.shelf.built(name, version) is None:
            self.build(name, version)
        repository.add(self.repository, self.shelf, [(name, version)], datetime.now(UTC))

    def copy(self, name: str) -> Path:
        """What a mirror has of it now, to be shown again later."""
        return Path(shutil.copytree(self.directory, self.work / name))

    def show(self, copy: Path) -> None:
        shutil.rmtree(self.directory)
        shutil.copytree(copy, self.directory)

    def file(self, pattern: str) -> Path:
        (found,) = self.directory.glob(pattern)
        return found

    @property
    def root(self) -> bytes:
        return (self.directory / "metadata" / "1.root.json").read_bytes()


class Operator:
    def __init__(self, work: Path, place: str, root: bytes) -> None:
        self.shelf = Shelf(work / "operator")
        self.shelf.make()
        sources.add(self.shelf, "vendor", place, root)

    @property
    def source(self) -> sources.Source:
        return sources.find(self.shelf, "vendor")

    def offered(self) -> list[str]:
        return [entry.id for entry in sources.look(self.shelf, self.source).entries]

    def pull(self, spec: str) -> Manifest:
        index = sources.look(self.shelf, self.source)
        return sources.pull(self.shelf, self.source, sources.chosen(index, spec, "amd64"))

    @property
    def has(self) -> list[str]:
        """Everything of runtimes on the shelf, and nothing half."""
        assert list((self.shelf.path / "work").iterdir()) == []
        images = {file.name.removesuffix(".erofs") for file in (self.shelf.path / "images").iterdir()}
        assert images == {sha256 for *_, sha256 in self.shelf.all_built()}
        return [f"{bundle}:{version}" for bundle, version, *_ in self.shelf.all_built()]


LONG_AGO = datetime.now(UTC) - timedelta(days=4000)


def opened(directory: Path) -> Repository:
    return Repository(directory)
