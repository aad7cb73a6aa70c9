"""Which recipes the words of a command mean, what of them cannot be built here and why, and one after the other.

Nothing is left out silently. What is named must be possible, or nothing is begun; of a family or of everything the
rest is done, and what could not be is told in the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuaas.cli import exits, output
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.runtimes.recipe import Recipe
    from gpuaas.runtimes.settings import Settings
    from gpuaas.runtimes.shelf import Shelf


@dataclass
class Chosen:
    """`grouped`: came with a family, and nobody named it. `left`: by id, why it is not among them."""

    recipes: "list[Recipe]" = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)


def chosen(names: tuple[str, ...], everything: bool, directories: tuple[Path, ...], settings: "Settings") -> Chosen:
    """`--python-3.11-ml` is `python-3.11-ml`, `--python-all` the family. An unknown one fails before any work."""
    from gpuaas.runtimes.library import Library

    library = Library(directories)
    wanted = [name.removeprefix("--") for name in names] + (["all"] if everything else [])
    if not wanted:
        raise Invalid("Which runtimes?", "Name them, or a family like --python-all, or --all.")
    found: dict[str, Recipe] = {}
    left: dict[str, str] = {}
    named: set[str] = set()
    for name in wanted:
        is_file = "/" in name or name.endswith((".yml", ".yaml"))
        group = {recipe.id: recipe for recipe in ([library.add(Path(name))] if is_file else library.select(name))}
        if name == "all" or name.endswith("-all"):
            why = {id: said for id, recipe in group.items() if (said := _elsewhere(recipe, settings))}
            if len(why) == len(group):
                raise Invalid(f"Nothing of {name} can be built here.", _listed(why))
            left |= why
            group = {id: recipe for id, recipe in group.items() if id not in why}
        else:
            named |= set(group)
        found |= group
    left = {id: why for id, why in left.items() if id not in found}
    return Chosen(list(found.values()), set(found) - named, left)


def built(names: tuple[str, ...], directories: tuple[Path, ...], shelf: "Shelf") -> list[tuple[str, str]]:
    """Bundle and version of what is built here; taken-in runtimes have no recipe file."""
    from gpuaas.runtimes.library import Library
    from gpuaas.runtimes.resolve import Name, resolve

    here = dict.fromkeys(Name(each.bundle, each.version) for each in shelf.all_built())
    if not names:
        return [(name.bundle, name.version) for name in here]
    known = {(name.bundle, name.version): name for name in here}
    known |= {(name.bundle, name.version): name for name in Library(directories).names()}
    return [(found.bundle, found.version) for found in (resolve(name, known.values()) for name in names)]


def _elsewhere(recipe: "Recipe", settings: "Settings") -> str:
    """Why it is built only where a site has what public registries have not. Empty: it can be tried."""
    if recipe.buildable:
        return ""
    missing = sorted({each.index for each in recipe.sources if each.index and settings.index(each.index) is None})
    if missing:
        return f"public registries do not have it; it needs an index of your site called {' and '.join(missing)}"
    return "" if any(each.index for each in recipe.sources) else "public registries do not have what it needs"


def checked(picked: Chosen, settings: "Settings", shelf: "Shelf", relock: bool) -> dict[str, str]:
    """Asks every registry of every recipe before work starts. What cannot be built of a family, and why."""
    from gpuaas.runtimes import tools
    from gpuaas.runtimes.build import precheck

    architecture = tools.architecture()
    open_ = [
        recipe
        for recipe in picked.recipes
        if relock or not shelf.lock(recipe.name, recipe.version, architecture).exists()
    ]
    silent = precheck.unanswered(open_, architecture, settings)
    for id, problem in silent.items():
        if id not in picked.grouped:
            raise problem
    return {id: problem.message for id, problem in silent.items()}


def for_each(
    session: Session, picked: Chosen, settings: "Settings", shelf: "Shelf", relock: bool,
    work: "Callable[[Recipe], None]",
) -> int:  # fmt: skip
    """The exit code. Of several, one that fails does not keep the others from being made."""
    for id, why in picked.left.items():
        output.note(f"{id} is left out: {why}.")
    failed = checked(picked, settings, shelf, relock)
    for id, why in failed.items():
        output.note(f"{id} is left out: {why}")
    for recipe in picked.recipes:
        if recipe.id in failed:
            continue
        try:
            work(recipe)
        except Exception as error:
            if len(picked.recipes) == 1:
                raise
            exits.report(error, json=session.json)
            failed[recipe.id] = str(error)
    if failed:
        output.note(f"{len(failed)} of {len(picked.recipes)} could not be made: {', '.join(sorted(failed))}.")
    return exits.FAILED if failed else exits.OK


def _listed(why: dict[str, str]) -> str:
    return "\n".join(f"{id}: {said}." for id, said in sorted(why.items()))
