"""The catalog of runtimes: what there is, which one a name means, publishing and deprecating."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gpuaas.control.app import access
from gpuaas.control.app.nodes import record, signed_by
from gpuaas.control.store import identity, nodes, runtime_bundles
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, Taken, conflict, invalid, not_found
from gpuaas.kit.ids import is_id
from gpuaas.model.identity import Caller
from gpuaas.model.lifecycle import RUNTIME_BUNDLE
from gpuaas.model.permission import role_allows
from gpuaas.model.runtime import RuntimeBundle
from gpuaas.runtimes.resolve import Name, family, resolve
from gpuaas.wire import node_request
from gpuaas.wire.node import RuntimeSpec

MOST_BYTES = 2**40
NOT_SAID = re.compile(r"[\x00-\x1f\x7f-\x9f]")
USABLE = ("published",)


def list_bundles(
    tx: Tx, caller: Caller, everything: bool, after: tuple[str, str] | None, limit: int
) -> list[RuntimeBundle]:
    """What can be applied; with `everything` also what could be once, and for operators what is on its way."""
    projects = access.projects(tx, caller, "runtime_bundle.read")
    states = _states(caller) if everything else USABLE
    return runtime_bundles.visible(tx, list(projects), states, after=after, limit=limit)


def show(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    return find(tx, caller, "runtime_bundle.read", name)


def versions(tx: Tx, caller: Caller, name: str) -> list[RuntimeBundle]:
    """Of the bundle with this slug, or of the bundle that this version is of; the oldest first."""
    projects = access.projects(tx, caller, "runtime_bundle.read")
    known = runtime_bundles.visible(tx, list(projects), _states(caller))
    slug = next((each.slug for each in known if name in (each.id, each.slug)), None)
    if slug is None:
        raise not_found("runtime bundle", name)
    order = {each.version: number for number, each in enumerate(family(slug, {_named(each) for each in known}))}
    return sorted(
        (each for each in known if each.slug == slug), key=lambda each: (order[each.version], each.architecture)
    )


def manifest(tx: Tx, bundle: RuntimeBundle) -> dict[str, Any]:
    return runtime_bundles.manifest(tx, bundle.id)


def find(tx: Tx, caller: Caller, action: str, name: str) -> RuntimeBundle:
    """By id or by any spelling of its name."""
    known = runtime_bundles.visible(tx, list(access.projects(tx, caller, action)), _states(caller))
    if is_id(name, "rb"):
        found = [each for each in known if each.id == name]
        if not found:
            raise not_found("runtime bundle", name)
        return found[0]
    return named(known, name, None)


def named(known: list[RuntimeBundle], name: str, architecture: str | None) -> RuntimeBundle:
    """Never a substitute: unknown names are refused with the nearest ones, ambiguous ones with all."""
    chosen = resolve(name, sorted({_named(each) for each in known}))
    fits = [each for each in known if (each.slug, each.version) == (chosen.bundle, chosen.version)]
    mine = [each for each in fits if each.architecture == architecture] or fits
    if len(mine) > 1:
        whose = {each.id: ", of a project" if each.project_id else "" for each in mine}
        listed = ", ".join(f"{each.id} ({each.architecture}{whose[each.id]})" for each in mine)
        raise invalid(f"{chosen.id} is there several times.", f"Use an id: {listed}.", code="ambiguous_runtime")
    return mine[0]


def _named(bundle: RuntimeBundle) -> Name:
    return Name(bundle.slug, bundle.version, bundle.is_default)


def _states(caller: Caller) -> tuple[str, ...]:
    """Drafts are the business of those who publish."""
    hidden = set() if role_allows(caller.platform_role, "runtime_bundle.write") else {"draft"}
    return tuple(sorted(RUNTIME_BUNDLE.states - hidden))


def describe(tx: Tx, caller: Caller, said: dict[str, Any], project_id: str | None) -> RuntimeBundle:
    """A version, as its manifest describes it. A draft until its image is here and it is published."""
    access.on_platform(tx, caller, "runtime_bundle.write")
    if project_id is not None and identity.project(tx, project_id) is None:
        raise not_found("project", project_id)
    values = {**described(said), "project_id": project_id, "created_by": caller.user_id}
    if project_id is not None and values["support"] != "custom":
        raise invalid("What belongs to one project has the support level `custom`.", "Build it from a recipe of yours.")
    key = (values["slug"], values["version"], values["architecture"])
    if project_id is not None and runtime_bundles.by_name(tx, *key, None):
        raise _there(values, "The platform has this version.")
    before = runtime_bundles.by_name(tx, *key, project_id, lock=True)
    if before is None:
        try:
            made = runtime_bundles.insert(tx, **values)
        except Taken as error:
            raise conflict("changed_meanwhile", "Somebody else described it in this moment.", "Try again.") from error
    elif before.digest == values["digest"]:
        made = before
    elif before.state == "draft":
        made = runtime_bundles.rewrite(tx, before, **values)
    else:
        raise _there(values, f"Another content of this version is {before.state}: {before.digest}.")
    said_of = {"name": made.name, "digest": made.digest, "project": project_id}
    record(tx, "runtime_bundle.describe", "runtime_bundle", made.id, **said_of)
    return made


def described(said: dict[str, Any]) -> dict[str, Any]:
    """The columns that a manifest gives, or why it is none."""
    from gpuaas.runtimes import bundlefile
    from gpuaas.runtimes.manifest import decode

    found = decode(msgspec.json.encode(said))
    layer, recipe = found.layers[0], found.recipe
    bundlefile.recipe_is_sound(found)
    values = {"bundle": found.bundle, "version": found.version, "digest": layer.sha256, "size": layer.size}
    plain = msgspec.to_builtins(found)
    try:
        msgspec.convert(values, RuntimeSpec)
    except msgspec.ValidationError as error:
        raise invalid(
            f"The manifest is not valid: {error}.", "Build the runtime again.", code="refused_content"
        ) from None
    if not 0 < layer.size <= MOST_BYTES or any(NOT_SAID.search(text) for text in _lines(plain)):
        raise invalid("The manifest has a size or characters that cannot be.", code="refused_content")
    return {
        "slug": found.bundle,
        "version": found.version,
        "architecture": found.architecture,
        "product": recipe.product or found.bundle,
        "description": recipe.description,
        "family": recipe.requirements.gpu_family,
        "support": recipe.support,
        "is_default": recipe.default,
        "digest": layer.sha256,
        "size": layer.size,
        "requirements": msgspec.to_builtins(recipe.requirements),
        "manifest": plain,
    }


def _lines(part: Any) -> list[str]:
    """Every line of every text in it."""
    if isinstance(part, str):
        return re.split(r"[\n\t]", part)
    if isinstance(part, dict):
        return [line for pair in part.items() for each in pair for line in _lines(each)]
    return [line for each in part for line in _lines(each)] if isinstance(part, list | tuple) else []


def publish(tx: Tx, caller: Caller, name: str, is_here: Callable[[str], bool]) -> RuntimeBundle:
    """From here on everybody can apply it. Asked twice, it is not an error."""
    bundle = _for_writing(tx, caller, name)
    if bundle.state == "deprecated":
        raise conflict("not_in_this_state", f"{bundle.name} is deprecated.", "Build another version and publish that.")
    if bundle.state == "draft":
        if not is_here(bundle.digest):
            said = f"The image of {bundle.name} is not here yet."
            raise conflict("no_image", said, f"Send it: PUT /api/v1/runtime-images/{bundle.digest}.")
        bundle = runtime_bundles.move(tx, bundle, "publish")
    record(tx, "runtime_bundle.publish", "runtime_bundle", bundle.id, name=bundle.name, digest=bundle.digest)
    return bundle


def deprecate(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    """Nobody gets it anew. Machines that have it keep it, and can go back to it."""
    bundle = _for_writing(tx, caller, name)
    if bundle.state == "draft":
        raise conflict("not_in_this_state", f"{bundle.name} is not published.", "There is nothing to deprecate.")
    if bundle.state == "published":
        bundle = runtime_bundles.move(tx, bundle, "deprecate")
    record(tx, "runtime_bundle.deprecate", "runtime_bundle", bundle.id, name=bundle.name)
    return bundle


def to_verify(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    """One whose image is to be read, by somebody who could send it again."""
    return _for_writing(tx, caller, name)


def verified(tx: Tx, caller: Caller, id: str, found: str) -> RuntimeBundle:
    """Its image was read: intact, damaged (and gone now) or missing."""
    bundle = _for_writing(tx, caller, id)
    said = {"name": bundle.name, "digest": bundle.digest, "image": found}
    record(tx, "runtime_bundle.verify", "runtime_bundle", bundle.id, **said)
    return bundle


def expected_image(tx: Tx, caller: Caller, digest: str) -> int:
    """How large an image is that somebody wants to send."""
    access.on_platform(tx, caller, "runtime_bundle.write")
    known = runtime_bundles.by_digest(tx, digest)
    if not known:
        raise Problem(
            "not_found", 404, "No runtime has this image.", "Send its manifest first: POST /api/v1/runtime-bundles."
        )
    return known[0].size


def image_sent(tx: Tx, caller: Caller, digest: str, received: int) -> None:
    access.on_platform(tx, caller, "runtime_bundle.write")
    record(tx, "runtime_image.send", "runtime_image", digest, received=received)


def fetch_image(tx: Tx, headers: Callable[[str], str], method: str, path: str, digest: str) -> str:
    """A node asks for an image, and proves that it is one of ours. Answers which node."""
    tx.authorized.add("runtime_image.fetch")
    node_id, at = headers(node_request.NODE), headers(node_request.TIME)
    proof = headers(node_request.SIGNATURE)
    refused = Problem(
        "unauthenticated", 401, "Only nodes fetch images, and sign their request.", "Join the node again."
    )
    if not (is_id(node_id, "nd") and re.fullmatch(r"[0-9]{1,12}", at)):
        raise refused
    key = nodes.public_key(tx, node_id)
    if key is None or not signed_by(key, node_request.signed(method, path, int(at)), proof):
        raise refused
    if abs(tx.now.timestamp() - int(at)) > node_request.TOLERANCE_SECONDS:
        raise Problem("clock_skew", 401, "The request was signed more than five minutes ago.", "Set the node's clock.")
    if not any(each.state != "draft" for each in runtime_bundles.by_digest(tx, digest)):
        raise Problem("not_found", 404, "No runtime has this image.", "See `gpuaas runtime list`.")
    return node_id


def _for_writing(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    access.on_platform(tx, caller, "runtime_bundle.write")
    known = runtime_bundles.visible(tx, None, sorted(RUNTIME_BUNDLE.states))
    found = [each for each in known if each.id == name] if is_id(name, "rb") else [named(known, name, None)]
    bundle = runtime_bundles.by_id(tx, found[0].id, lock=True) if found else None
    if bundle is None:
        raise not_found("runtime bundle", name)
    return bundle


def _there(values: dict[str, Any], why: str) -> Problem:
    name = f"{values['slug']}:{values['version']}"
    return conflict("already_there", f"{why} A version has one content.", f"Give yours another version than {name}.")
