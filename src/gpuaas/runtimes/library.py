"""The recipes that are there: ours, and those of directories that the site or the user names."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes import inherit, resolve, schema
from gpuaas.runtimes.recipe import Recipe
from gpuaas.runtimes.resolve import Name

SHIPPED = Path(__file__).parent / "recipes"


class Library:
    """Files are read once. A recipe of a user never takes the place of one of ours: a second one of a name and
    version is refused, and what is not ours has the support level `custom`."""

    def __init__(self, directories: Iterable[Path] = ()) -> None:
        self._directories = tuple(directories)

    @cached_property
    def _recipes(self) -> dict[str, Recipe]:
        found: dict[str, Recipe] = {}
        for directory in (SHIPPED, *self._directories):
            if not directory.is_dir():
                said = f"There is no directory {directory} with recipes."
                raise Problem("invalid_recipe", 422, said, "Name a directory of YAML files.")
            for file in sorted([*directory.glob("*.yml"), *directory.glob("*/runtime.yml")]):
                self._add(found, schema.read(file), directory is SHIPPED)
        return found

    def _add(self, found: dict[str, Recipe], recipe: Recipe, shipped: bool) -> None:
        if recipe.id in found:
            said = f"{recipe.file}: {recipe.id} is there already, in {found[recipe.id].file}."
            raise Problem("invalid_recipe", 422, said, "Give yours another name or version.")
        found[recipe.id] = recipe if shipped else msgspec.structs.replace(recipe, support="custom", default=False)

    def add(self, file: Path) -> Recipe:
        """One more file, as written by a user; answers it with its parents."""
        recipe = schema.read(file)
        self._add(self._recipes, recipe, shipped=False)
        return self.flat(self._recipes[recipe.id])

    def names(self) -> list[Name]:
        return sorted(Name(each.name, each.version, each.default) for each in self._recipes.values())

    def find(self, spec: str) -> Recipe:
        """As written; `flat` adds its parents."""
        return self._recipes[resolve.resolve(spec, self.names()).id]

    def flat(self, recipe: Recipe) -> Recipe:
        return inherit.flatten(recipe, self.find)

    def get(self, spec: str) -> Recipe:
        return self.flat(self.find(spec))

    def select(self, *specs: str) -> list[Recipe]:
        """Each by name; a family as `python-all`, everything as `all`. An unknown one fails before any is used."""
        chosen: dict[str, Recipe] = {}
        for spec in specs:
            bundle = spec.removesuffix("-all")
            if spec == "all":
                group = self.names()
            elif spec.endswith("-all") and (members := resolve.family(bundle, self.names())):
                group = members
            else:
                group = [resolve.resolve(spec, self.names())]
            chosen |= {name.id: self.get(name.id) for name in group}
        return list(chosen.values())
