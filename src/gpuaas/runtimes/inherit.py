"""`from:`: one recipe with all that it and its parents say, in order. What contradicts is refused, not chosen."""

from collections.abc import Callable, Iterable

import msgspec

from gpuaas.kit.errors import Problem
from gpuaas.runtimes.recipe import Recipe, Requirements

_MAX_DEPTH = 8
_LISTS = ("sources", "remove", "run", "mounts", "caches", "verify")


def flatten(recipe: Recipe, find: Callable[[str], Recipe], _above: tuple[str, ...] = ()) -> Recipe:
    """`find` answers the recipe that a parent's name means, or raises. The result has no parents any more."""
    if recipe.id in _above:
        raise _refused(recipe, f"inherits from itself: {' -> '.join((*_above, recipe.id))}")
    if len(_above) >= _MAX_DEPTH:
        raise _refused(recipe, f"has more than {_MAX_DEPTH} generations of parents")
    if not recipe.parents:
        return recipe
    parents = [flatten(find(name), find, (*_above, recipe.id)) for name in recipe.parents]
    everyone = [*parents, recipe]
    said = {field: _joined(getattr(each, field) for each in everyone) for field in _LISTS}
    return msgspec.structs.replace(
        recipe,
        parents=(),
        python=_python(recipe, parents),
        links=_values(recipe, parents, "links"),
        environment=_values(recipe, parents, "environment"),
        path_prepend=_joined(each.path_prepend for each in reversed(everyone)),
        requirements=_requirements(recipe, [each.requirements for each in everyone]),
        buildable=all(each.buildable for each in everyone),
        **said,
    )


def _joined(lists: Iterable[tuple[object, ...]]) -> tuple[object, ...]:
    """In order; what two parents have from one grandparent comes once."""
    return tuple(dict.fromkeys(item for each in lists for item in each))


def _python(recipe: Recipe, parents: list[Recipe]) -> str:
    found = {each.python for each in parents if each.python}
    if not recipe.python and len(found) > 1:
        raise _refused(recipe, f"combines parents with different Pythons: {', '.join(sorted(found))}")
    return recipe.python or next(iter(found), "")


def _values(recipe: Recipe, parents: list[Recipe], field: str) -> tuple[tuple[str, str], ...]:
    """The child's value wins; two parents that disagree need a child that decides."""
    own: dict[str, str] = dict(getattr(recipe, field))
    merged: dict[str, str] = {}
    for parent in parents:
        for name, value in getattr(parent, field):
            if merged.setdefault(name, value) != value and name not in own:
                raise _refused(recipe, f"its parents disagree on {field} {name}: {merged[name]!r} and {value!r}")
    return tuple((merged | own).items())


def _requirements(recipe: Recipe, all_of: list[Requirements]) -> Requirements:
    """A machine must have what each of them needs."""
    architectures = tuple(
        name for name in all_of[0].architectures if all(name in each.architectures for each in all_of)
    )
    if not architectures:
        raise _refused(recipe, "no architecture suits it and all its parents")
    families = {each.gpu_family for each in all_of} - {"any"}
    if len(families) > 1:
        raise _refused(recipe, f"combines GPU families: {', '.join(sorted(families))}")
    return Requirements(
        architectures,
        next(iter(families), "any"),
        max((each.min_driver for each in all_of), key=numbers),
        max((each.cuda for each in all_of), key=numbers),
        max((each.rocm for each in all_of), key=numbers),
        max(each.min_memory_bytes for each in all_of),
        max(each.recommended_memory_bytes for each in all_of),
    )


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")) if version else ()


def _refused(recipe: Recipe, why: str) -> Problem:
    return Problem(
        "invalid_recipe", 422, f"{recipe.file}: {recipe.id} {why}.", "Change `from:` or decide in the recipe."
    )
