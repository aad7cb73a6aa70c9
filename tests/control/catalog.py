"""Runtimes for tests of the control plane: manifests that describe images nobody ever built."""

import hashlib
from itertools import count
from typing import Any

import msgspec

from gpuaas.control.app import runtime_bundles as catalog
from gpuaas.control.store import runtime_bundles
from gpuaas.control.store.transaction import Store, Tx
from gpuaas.model.runtime import RuntimeBundle
from gpuaas.runtimes.manifest import Layer, Manifest
from gpuaas.runtimes.recipe import Check, Recipe, Requirements

_numbers = count()


def new_slug() -> str:
    """Letters only: digits would be taken for the version in `name-version`."""
    return "tools" + "".join(chr(ord("a") + int(digit)) for digit in str(next(_numbers)))


def content(slug: str, version: str, length: int = 100) -> bytes:
    """What stands for an image."""
    seed = f"{slug}:{version} ".encode()
    return (seed * (length // len(seed) + 1))[:length]


def manifest(
    slug: str = "tools", version: str = "1.0", image: bytes | None = None, *, support: str = "supported",
    default: bool = False, architecture: str = "amd64", **requirements: Any,
) -> dict[str, Any]:  # fmt: skip
    image = content(slug, version) if image is None else image
    recipe = Recipe(
        slug,
        version,
        product=slug.title(),
        description=f"{slug} for tests",
        support=support,
        default=default,
        requirements=Requirements(**{"architectures": ("amd64", "arm64"), **requirements}),
        verify=(Check("true"),),
    )
    layer = Layer(hashlib.sha256(image).hexdigest(), len(image))
    nothing = "0" * 64
    made = Manifest(slug, version, architecture, (layer,), recipe, nothing, nothing, nothing, 1000, 10, "a test")
    found: dict[str, Any] = msgspec.to_builtins(made)
    return found


def publish(store: Store, slug: str | None = None, version: str = "1.0", project_id: str | None = None,
            state: str = "published", **more: Any) -> RuntimeBundle:  # fmt: skip
    """In the catalog, without an image anywhere."""

    def work(tx: Tx) -> RuntimeBundle:
        said = manifest(slug or new_slug(), version, **more)
        values = {**catalog.described(said), "project_id": project_id, "created_by": "us-test"}
        made = runtime_bundles.insert(tx, **values)
        for event in {"draft": [], "published": ["publish"], "deprecated": ["publish", "deprecate"]}[state]:
            made = runtime_bundles.move(tx, made, event)
        return made

    return store.transact(work)
