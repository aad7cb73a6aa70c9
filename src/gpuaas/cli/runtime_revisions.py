"""What `deploy` makes of a version that the server has: nothing, its next revision, or a refusal. Before it is built.

A version has one content for ever, and most are named by a line (`node:18`, `python:3.11+ml`): newer files of it are
another revision, `18-r2`, which the name means from then on.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from gpuaas.cli import output
from gpuaas.cli.invalid import Invalid
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.runtimes.manifest import Manifest
    from gpuaas.runtimes.recipe import Recipe
    from gpuaas.runtimes.settings import Settings
    from gpuaas.runtimes.shelf import Shelf
    from gpuaas.sdk.types import RuntimeBundleView


def to_build(
    session: Session, recipe: "Recipe", project: str | None, relock: bool, settings: "Settings", shelf: "Shelf"
) -> "Recipe | RuntimeBundleView":
    """The recipe, perhaps as another revision; or what is published already, and stays."""
    from gpuaas.runtimes import tools

    architecture = tools.architecture()
    newest = _newest(session, recipe, project, architecture)
    if newest is None:
        return recipe
    there = msgspec.structs.replace(recipe, version=newest.version)
    if relock:
        return _next(session, there, newest, architecture, settings, shelf)
    if newest.state == "deprecated":
        raise Invalid(f"{newest.name} is deprecated.", "Say --relock to publish its next revision.")
    if not _same(session, there, newest):
        raise Invalid(
            f"Another recipe of {newest.name} is published, and a version has one content.",
            "Give yours another version, or say --relock: that publishes the next revision of this one.",
        )
    return newest if newest.received_bytes == newest.size_bytes else there


def _newest(session: Session, recipe: "Recipe", project: str | None, architecture: str) -> "RuntimeBundleView | None":
    """Of all revisions of this version that were ever published for whom it is meant."""
    from gpuaas.runtimes.resolve import Name
    from gpuaas.sdk import ApiError

    runtimes = session.client().runtimes
    try:
        known = list(runtimes.of_project(project) if project else runtimes.versions(recipe.name))
    except ApiError as error:
        if error.status != 404 or project:
            raise
        return None
    fits = [
        (name.revision, bundle)
        for bundle in known
        if (bundle.slug, bundle.architecture) == (recipe.name, architecture)
        and (bundle.scope == "project") is bool(project)
        and bundle.state != "draft"
        and (name := Name(bundle.slug, bundle.version)).line == recipe.version
    ]
    return max(fits, key=lambda each: each[0])[1] if fits else None


def _same(session: Session, recipe: "Recipe", newest: "RuntimeBundleView") -> bool:
    from gpuaas.runtimes.lock.lockfile import recipe_digest

    return recipe_digest(_published(session, newest).recipe) == recipe_digest(recipe)


def _published(session: Session, newest: "RuntimeBundleView") -> "Manifest":
    from gpuaas.runtimes.manifest import decode

    said: dict[str, Any] = session.client().runtimes.show(newest.id).manifest or {}
    return decode(msgspec.json.encode(said))


def _next(
    session: Session,
    there: "Recipe",
    newest: "RuntimeBundleView",
    architecture: str,
    settings: "Settings",
    shelf: "Shelf",
) -> "Recipe | RuntimeBundleView":
    """Locked first: where nothing is newer than what is published, wherever that was built, nothing has to be made."""
    from gpuaas.runtimes.lock import fresh
    from gpuaas.runtimes.lock.lockfile import lock_digest, recipe_digest
    from gpuaas.runtimes.resolve import Name

    name = Name(there.name, there.version)
    recipe = msgspec.structs.replace(there, version=name.revised(name.revision + 1))
    lock = fresh.fresh(recipe, architecture, settings, shelf)
    as_there = msgspec.structs.replace(lock, runtime=there.id, recipe=recipe_digest(there))  # all that names a version
    if newest.state == "published" and lock_digest(as_there) == _published(session, newest).lock:
        output.note(f"{newest.name} is made of the newest files already.")
        return newest
    fresh.keep(lock, recipe, shelf)
    return recipe
