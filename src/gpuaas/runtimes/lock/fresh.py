"""A lock without a build: what would be taken right now."""

import msgspec

from gpuaas.runtimes.lock.lockfile import Artifact, Lock
from gpuaas.runtimes.lock.locking import lock
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.shelf import Shelf, write


def fresh(recipe: Recipe, architecture: str, settings: Settings, shelf: Shelf) -> Lock:
    """Nothing of it is kept: `keep` makes it the one that the next build uses."""
    shelf.make()
    with shelf.workspace() as work, shelf.deciding():
        return lock(recipe, architecture, settings, shelf, work)


def keep(made: Lock, recipe: Recipe, shelf: Shelf) -> None:
    write(shelf.lock(recipe.name, recipe.version, made.architecture), msgspec.json.encode(made))


def known(recipe: Recipe, architecture: str, shelf: Shelf) -> Lock | None:
    """Of the last build of this version here."""
    try:
        return msgspec.json.decode(shelf.lock(recipe.name, recipe.version, architecture).read_bytes(), type=Lock)
    except (OSError, msgspec.DecodeError, UnicodeError):
        return None


def same_files(one: Lock, other: Lock) -> bool:
    """Whether builds of both would be made of the same, whatever they are called."""

    def of(artifacts: tuple[Artifact, ...]) -> list[tuple[str, str, int]]:
        return [(each.digest, each.into, each.strip) for each in artifacts]

    return [of(one.base), of(one.tools), of(one.artifacts)] == [of(other.base), of(other.tools), of(other.artifacts)]
