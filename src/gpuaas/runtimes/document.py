"""A recipe as a document again: what its `runtime.yml` would say. Reading it gives the same recipe."""

from typing import Any

import yaml

from gpuaas.runtimes.recipe import Recipe, Source


def document(recipe: Recipe) -> dict[str, Any]:
    """Only what is said; defaults are left out."""
    wants = recipe.requirements
    said: dict[str, Any] = {
        "name": recipe.name,
        "version": recipe.version,
        "product": recipe.product,
        "description": recipe.description,
        "type": recipe.type,
        "support": recipe.support,
        "default": recipe.default or None,
        "buildable": None if recipe.buildable else False,
        "from": list(recipe.parents),
        "python": recipe.python,
        "sources": [_source(each) for each in recipe.sources],
        "links": dict(recipe.links),
        "remove": list(recipe.remove),
        "run": list(recipe.run),
        "mounts": [_plain(source=m.source, target=m.target, selective=list(m.selective)) for m in recipe.mounts],
        "environment": {**dict(recipe.environment), **_plain(PATH_PREPEND=list(recipe.path_prepend))},
        "caches": [_plain(volume=c.volume, target=c.target, variable=c.variable) for c in recipe.caches],
        "requirements": _plain(
            architecture=list(wants.architectures),
            gpu_family=wants.gpu_family,
            min_driver=wants.min_driver,
            cuda=wants.cuda,
            rocm=wants.rocm,
            min_memory=f"{wants.min_memory_bytes}B" if wants.min_memory_bytes else "",
            recommended_memory=f"{wants.recommended_memory_bytes}B" if wants.recommended_memory_bytes else "",
        ),
        "verify": [_plain(run=each.run, expect=each.expect) for each in recipe.verify],
    }
    return _plain(**said)


def dumps(recipe: Recipe) -> str:
    text: str = yaml.safe_dump(document(recipe), sort_keys=False, allow_unicode=True, width=110)
    return text


def _source(source: Source) -> dict[str, Any]:
    items = list(source.items) if source.kind != "archive" else source.items[0]
    when = {"architecture": list(source.architectures)} if source.architectures else None
    return {
        source.kind: items,
        **_plain(
            suite=source.suite,
            index=source.index,
            sha256=source.sha256,
            into=source.into,
            strip=str(source.strip) if source.strip else "",
            build_only=source.build_only or None,
            when=when,
        ),
    }


def _plain(**values: Any) -> dict[str, Any]:
    """Without what says nothing."""
    empty: tuple[object, ...] = (None, "", [], {})
    return {name: value for name, value in values.items() if value not in empty}
