"""Locks a flat recipe: all its sources, the tools of its build and the base."""

from pathlib import Path

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.lock import archive, deb, npm, pypi
from gpuaas.runtimes.lock.lockfile import Artifact, Lock, recipe_digest
from gpuaas.runtimes.recipe import Recipe, Source
from gpuaas.runtimes.settings import Settings
from gpuaas.runtimes.shelf import Shelf


def lock(recipe: Recipe, architecture: str, settings: Settings, shelf: Shelf, work: Path) -> Lock:
    if architecture not in recipe.requirements.architectures:
        have = ", ".join(recipe.requirements.architectures)
        raise Problem("cannot_lock", 422, f"{recipe.id} is not made for {architecture}, only for {have}.")
    sources = [each for each in recipe.sources if not each.architectures or architecture in each.architectures]
    if not sources:
        said = f"{recipe.id} has no sources: there is nothing to build."
        raise Problem("cannot_lock", 422, said, "Add `sources:` or `from:` to the recipe.")
    apt, base = deb.lock_base(shelf.path / "apt", architecture, settings)
    tools = deb.lock([each for each in sources if each.build_only], apt, shelf.path / "apt", architecture, settings)
    return Lock(
        recipe.id,
        architecture,
        recipe_digest(recipe),
        tuple(base),
        tuple(tools),
        tuple(_artifacts(recipe, sources, apt, architecture, settings, shelf, work)),
    )


def _artifacts(
    recipe: Recipe, sources: list[Source], apt: deb.Apt, architecture: str, settings: Settings, shelf: Shelf, work: Path
) -> list[Artifact]:
    def of(kind: str) -> list[Source]:
        return [each for each in sources if each.kind == kind and not each.build_only]

    found = deb.lock(of("deb"), apt, shelf.path / "apt", architecture, settings)
    found += [each for source in of("archive") for each in archive.lock(source)]
    found += [each for source in of("npm") for each in npm.lock(source, settings)]
    found += pypi.lock(of("pypi"), recipe.python, architecture, settings, shelf.path / "uv", work)
    return found
