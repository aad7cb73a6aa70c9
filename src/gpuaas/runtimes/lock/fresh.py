"""A lock without a build: what would be taken right now."""

import msgspec

from gpuaas.runtimes.lock.lockfile import Lock
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
