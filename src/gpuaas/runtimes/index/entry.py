"""One runtime in an index: which one it is, and the file that carries it."""

import re

import msgspec
from msgspec import Struct
from tuf.api.metadata import TargetFile, Targets

from gpuaas.runtimes import schema
from gpuaas.runtimes.recipe import ARCHITECTURES

_PATH = re.compile(r"([^/]+)/([^/]+)/([^/]+)\.tar")


class Entry(Struct, frozen=True):
    bundle: str
    version: str
    architecture: str
    length: int  # of the file that carries it, in bytes
    image: str  # sha256
    manifest: str  # sha256
    default: bool = False  # what the bare name of its bundle means

    @property
    def id(self) -> str:
        return f"{self.bundle}:{self.version}"

    @property
    def path(self) -> str:
        return path(self.bundle, self.version, self.architecture)


class _Said(Struct, frozen=True):
    image: str
    manifest: str
    default: bool = False


def path(bundle: str, version: str, architecture: str) -> str:
    return f"{bundle}/{version}/{architecture}.tar"


def entries(targets: Targets) -> list[Entry]:
    """What an index lists. What is no runtime as we know it is somebody else's: an index may hold more."""
    found = [entry for file in targets.targets.values() if (entry := _entry(file)) is not None]
    return sorted(found, key=lambda each: (each.bundle, each.version, each.architecture))


def _entry(file: TargetFile) -> Entry | None:
    match = _PATH.fullmatch(file.path)
    if match is None or not (schema.NAME.fullmatch(match[1]) and schema.VERSION.fullmatch(match[2])):
        return None
    try:
        said = msgspec.convert(file.custom, _Said)
    except msgspec.ValidationError:
        return None
    if match[3] not in ARCHITECTURES or not (schema.SHA256.fullmatch(said.image) and "sha256" in file.hashes):
        return None
    return Entry(match[1], match[2], match[3], file.length, said.image, said.manifest, said.default)
