"""Runtimes of a project's own: whoever works in it publishes them, for its machines and for nobody else.

Their support level is `custom`, whatever the manifest says. Who makes them is not trusted by the nodes, so that an
image is looked into before it is published (runtimes/examined.py); and they are few and small enough for the disk of
the server.
"""

from collections.abc import Callable
from typing import Any

from gpuaas.control.app import access
from gpuaas.control.app import runtime_bundles as catalog
from gpuaas.control.store import image_places, runtime_bundles
from gpuaas.control.store.images import Images
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict, invalid
from gpuaas.model.identity import Caller, Project
from gpuaas.model.runtime import (
    MOST_BYTES_OF_A_PROJECT,
    MOST_BYTES_OF_ITS_IMAGE,
    MOST_OF_A_PROJECT,
    RuntimeBundle,
)

READ, WRITE = "project_runtime.read", "project_runtime.write"
GIB = 2**30


def list_bundles(tx: Tx, caller: Caller, project_name: str) -> list[RuntimeBundle]:
    """All that it has or had, also what is on its way."""
    return runtime_bundles.of_project(tx, access.in_project(tx, caller, READ, project_name).id)


def describe(tx: Tx, caller: Caller, project_name: str, said: dict[str, Any], images: Images) -> RuntimeBundle:
    """A draft, until its image is here and was looked into."""
    project = access.in_project(tx, caller, WRITE, project_name)
    values = {**catalog.described(said), "support": "custom", "project_id": project.id, "created_by": caller.user_id}
    if runtime_bundles.is_of_platform(tx, values["slug"]):
        raise conflict(
            "name_taken",
            f"{values['slug']} is a bundle of the platform: who asks for it must get that one.",
            f"Call yours otherwise, like {project.slug}-{values['slug']}.",
        )
    _has_room(
        runtime_bundles.of_project(tx, project.id, lock=True), values, image_places.of_project(images, project.id)
    )
    made = catalog.keep(tx, values)
    _record(tx, "describe", project, made)
    return made


def _has_room(has: list[RuntimeBundle], values: dict[str, Any], images: Images) -> None:
    """Also what is deprecated counts while its image is on the disk: or a loop could fill it."""
    if values["size"] > MOST_BYTES_OF_ITS_IMAGE:
        said = f"An image of a project has at most {MOST_BYTES_OF_ITS_IMAGE // GIB} GiB."
        raise invalid(said, "Make it smaller, or ask an operator to publish it for everybody.", code="too_large")
    key = (values["slug"], values["version"], values["architecture"])
    others = [each for each in has if (each.slug, each.version, each.architecture) != key]
    if sum(each.state != "deprecated" for each in others) >= MOST_OF_A_PROJECT:
        said = f"The project has {MOST_OF_A_PROJECT} versions of runtimes."
        raise conflict("too_many_runtimes", said, "Deprecate those that nobody needs, or delete drafts.")
    live = {each.digest: each.size for each in others if each.state != "deprecated"}
    stored = {each.digest: each.size for each in images.stored()}
    if sum({**stored, **live, values["digest"]: values["size"]}.values()) > MOST_BYTES_OF_A_PROJECT:
        said = f"The images of a project have at most {MOST_BYTES_OF_A_PROJECT // GIB} GiB together."
        raise conflict("too_many_runtimes", said, "Delete versions that nobody needs: deprecate them first.")


def expected_image(tx: Tx, caller: Caller, project_name: str, digest: str) -> tuple[str, int]:
    """Whose image somebody wants to send, and how large it is."""
    project = access.in_project(tx, caller, WRITE, project_name)
    return project.id, catalog.size_of(tx, digest, project.id)


def image_sent(tx: Tx, caller: Caller, project_name: str, digest: str, received: int) -> None:
    project = access.in_project(tx, caller, WRITE, project_name)
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "runtime_image", "id": digest}
    tx.audit("project_runtime.send", **about, received=received)


def to_examine(tx: Tx, caller: Caller, project_name: str, name: str) -> tuple[RuntimeBundle, dict[str, Any]]:
    """What would be published, and the manifest that its image has to agree with."""
    bundle = _among(runtime_bundles.of_project(tx, access.in_project(tx, caller, WRITE, project_name).id), name)
    return bundle, runtime_bundles.manifest(tx, bundle.id)


def publish(
    tx: Tx, caller: Caller, project_name: str, name: str, examined: str | None, is_here: Callable[[str], bool]
) -> RuntimeBundle:
    """For the machines of its project. `examined`: the digest of the image that was looked into just now."""
    project = access.in_project(tx, caller, WRITE, project_name)
    bundle = _find(tx, project, name)
    if bundle.state == "draft" and bundle.digest != examined and is_here(bundle.digest):
        raise conflict("changed_meanwhile", f"{bundle.name} was described anew in this moment.", "Try again.")
    bundle = catalog.published(tx, bundle, is_here)
    _record(tx, "publish", project, bundle)
    return bundle


def deprecate(tx: Tx, caller: Caller, project_name: str, name: str) -> RuntimeBundle:
    """By name every build of it."""
    project = access.in_project(tx, caller, WRITE, project_name)
    has = runtime_bundles.of_project(tx, project.id)
    first = _among(has, name)
    named = [each for each in has if each.name == first.name and name != first.id] or [first]
    builds = [catalog.deprecated(tx, catalog.locked(tx, each)) for each in named]
    _record(tx, "deprecate", project, builds[0])
    return builds[0]


def delete(tx: Tx, caller: Caller, project_name: str, name: str, images: Images) -> tuple[RuntimeBundle, Images | None]:
    """Its image is left aside where no other version has it, for the caller to drop when all of this is committed, or
    to bring back if it is not. The row of what was published stays: machines had it."""
    project = access.in_project(tx, caller, WRITE, project_name)
    has = runtime_bundles.of_project(tx, project.id, lock=True)  # nobody describes another version with this image
    bundle = catalog.locked(tx, _among(has, name))
    if bundle.state == "published":
        raise conflict("not_in_this_state", f"{bundle.name} is published.", "Deprecate it first.")
    if machines := runtime_bundles.machines_with(tx, bundle.id):
        said = f"{machines} machine{'s have' if machines > 1 else ' has'} {bundle.name}, or can go back to it."
        raise conflict("in_use", said, "Remove it there first.")
    if bundle.state == "draft":
        runtime_bundles.remove_draft(tx, bundle)
    _record(tx, "delete", project, bundle)
    if any(each.digest == bundle.digest and each.id != bundle.id for each in has):
        return bundle, None
    place = image_places.of_project(images, project.id)
    place.put_aside(bundle.digest)
    return bundle, place


def _find(tx: Tx, project: Project, name: str) -> RuntimeBundle:
    return catalog.locked(tx, _among(runtime_bundles.of_project(tx, project.id), name))


def _among(has: list[RuntimeBundle], name: str) -> RuntimeBundle:
    try:
        return catalog.among(has, name)
    except Problem as problem:
        if problem.code != "unknown_runtime":
            raise
        raise Problem("not_found", 404, f"There is no runtime bundle {name!r}.", problem.hint) from problem


def _record(tx: Tx, verb: str, project: Project, bundle: RuntimeBundle) -> None:
    about = {"org_id": project.org_id, "project_id": project.id, "kind": "runtime_bundle", "id": bundle.id}
    tx.audit(f"project_runtime.{verb}", **about, name=bundle.name, digest=bundle.digest)
