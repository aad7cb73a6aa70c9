"""The lock: every file of a version by digest. Where a file was found is noted, but does not count."""

import hashlib

import msgspec
from msgspec import Struct

from gpuaas.runtimes.recipe import Recipe

FORMAT = 1


class Artifact(Struct, frozen=True):
    kind: str
    name: str
    version: str
    file: str  # its file name, which wheels need
    digest: str  # sha256:... or sha512:...
    url: str
    size: int = 0  # 0: the registry does not tell
    into: str = ""
    strip: int = 0
    own_libc: bool = False  # deb: from a newer Debian than the base, with the C library that it needs


class Lock(Struct, frozen=True):
    runtime: str
    architecture: str
    recipe: str  # digest of the flat recipe
    base: tuple[Artifact, ...]
    tools: tuple[Artifact, ...]  # deb, for `run` only
    artifacts: tuple[Artifact, ...]
    format: int = FORMAT

    @property
    def everything(self) -> tuple[Artifact, ...]:
        return (*self.base, *self.tools, *self.artifacts)


def recipe_digest(recipe: Recipe) -> str:
    """Of what it says, not of where it stands."""
    return _digest(msgspec.structs.replace(recipe, file="", support="", default=False))


def lock_digest(lock: Lock) -> str:
    """The same for the same files, wherever they were found."""

    def placeless(artifacts: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        return tuple(msgspec.structs.replace(each, url="", size=0) for each in artifacts)

    return _digest(
        msgspec.structs.replace(
            lock, base=placeless(lock.base), tools=placeless(lock.tools), artifacts=placeless(lock.artifacts)
        )
    )


def _digest(thing: Struct) -> str:
    return hashlib.sha256(msgspec.json.encode(thing)).hexdigest()
