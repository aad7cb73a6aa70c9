"""The catalog of runtimes: what there is, which one a name means, publishing and deprecating."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gpuaas.control.app import access
from gpuaas.control.app.nodes import record, signed_by
from gpuaas.control.store import nodes, runtime_bundles
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
    known = platform_first(runtime_bundles.visible(tx, list(projects), _states(caller)))
    slug = next((each.slug for each in known if name in (each.id, each.slug)), None)
    if slug is None:
        raise not_found("runtime bundle", name)
    order = {each.version: number for number, each in enumerate(family(slug, _names(known)))}
    return sorted(
        (each for each in known if each.slug == slug), key=lambda each: (order[each.version], each.architecture)
    )


def manifest(tx: Tx, bundle: RuntimeBundle) -> dict[str, Any]:
    return runtime_bundles.manifest(tx, bundle.id)


def find(tx: Tx, caller: Caller, action: str, name: str) -> RuntimeBundle:
    """By id or by any spelling of its name."""
    return among(runtime_bundles.visible(tx, list(access.projects(tx, caller, action)), _states(caller)), name)


def among(known: list[RuntimeBundle], name: str) -> RuntimeBundle:
    """By name the first of its builds: what is the same for all of them is asked for."""
    if not is_id(name, "rb"):
        return named(platform_first(known), name)[0]
    found = next((each for each in known if each.id == name), None)
    if found is None:
        raise not_found("runtime bundle", name)
    return found


def platform_first(known: list[RuntimeBundle]) -> list[RuntimeBundle]:
    """What names can mean. A name of the platform means the platform's: nobody gets another bundle under it because
    somebody in the project took it before. What a project has under it can still be meant by id."""
    taken = {each.slug for each in known if each.project_id is None and each.state != "draft"}
    return [each for each in known if each.project_id is None or each.slug not in taken]


def named(known: list[RuntimeBundle], name: str) -> list[RuntimeBundle]:
    """A version, in every build that there is: one for each architecture, and where a machine is decides.

    Never a substitute: unknown names are refused with the nearest ones, ambiguous ones with all.
    """
    chosen = resolve(name, _names(known), "gpuaas runtime list --catalog")
    builds = [each for each in known if (each.slug, each.version) == (chosen.bundle, chosen.version)]
    if len({each.project_id for each in builds}) > 1:
        listed = ", ".join(f"{each.id} ({each.architecture}, of {each.project_id})" for each in builds)
        raise invalid(f"{chosen.id} is there several times.", f"Use an id: {listed}.", code="ambiguous_runtime")
    return sorted(builds, key=lambda each: each.architecture)


def _names(known: list[RuntimeBundle]) -> list[Name]:
    """Each version once, however many builds there are; one of them may be the default before the others are."""
    defaults = {(each.slug, each.version): False for each in known}
    for each in known:
        defaults[each.slug, each.version] |= each.is_default
    return sorted(Name(slug, version, default) for (slug, version), default in defaults.items())


def _states(caller: Caller) -> tuple[str, ...]:
    """Drafts are the business of those who publish."""
    hidden = set() if role_allows(caller.platform_role, "runtime_bundle.write") else {"draft"}
    return tuple(sorted(RUNTIME_BUNDLE.states - hidden))


def describe(tx: Tx, caller: Caller, said: dict[str, Any]) -> RuntimeBundle:
    """A version for everybody, as its manifest describes it. A draft until its image is here and it is published."""
    access.on_platform(tx, caller, "runtime_bundle.write")
    made = keep(tx, {**described(said), "project_id": None, "created_by": caller.user_id})
    record(tx, "runtime_bundle.describe", "runtime_bundle", made.id, name=made.name, digest=made.digest)
    return made


def keep(tx: Tx, values: dict[str, Any]) -> RuntimeBundle:
    """In the catalog. A draft is what was said of it last; what was published has one content for ever."""
    key = (values["slug"], values["version"], values["architecture"], values["project_id"])
    before = runtime_bundles.by_name(tx, *key, lock=True)
    if before is None:
        try:
            return runtime_bundles.insert(tx, **values)
        except Taken as error:
            raise conflict("changed_meanwhile", "Somebody else described it in this moment.", "Try again.") from error
    if before.digest == values["digest"]:
        return before
    if before.state == "draft":
        return runtime_bundles.rewrite(tx, before, **values)
    name = f"{values['slug']}:{values['version']}"
    said = f"Another content of this version is {before.state}: {before.digest}. A version has one content."
    raise conflict("already_there", said, f"Give yours another version than {name}.")


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
    """From here on everybody can apply it; by name every build of it. Asked twice, it is not an error."""
    builds = [published(tx, each, is_here) for each in _for_writing(tx, caller, name)]
    _recorded(tx, "publish", builds)
    return builds[0]


def published(tx: Tx, bundle: RuntimeBundle, is_here: Callable[[str], bool]) -> RuntimeBundle:
    if bundle.state == "deprecated":
        raise conflict("not_in_this_state", f"{bundle.name} is deprecated.", "Build another version and publish that.")
    if bundle.state == "draft":
        if not is_here(bundle.digest):
            said = f"The image of {bundle.name} is not here yet."
            raise conflict("no_image", said, "Send it: PUT .../runtime-images/{digest}, with the digest of the draft.")
        bundle = runtime_bundles.move(tx, bundle, "publish")
    return bundle


def deprecate(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    """Nobody gets it anew; by name none of its builds. Machines that have it keep it, and can go back to it."""
    builds = [deprecated(tx, each) for each in _for_writing(tx, caller, name)]
    _recorded(tx, "deprecate", builds)
    return builds[0]


def _recorded(tx: Tx, verb: str, builds: list[RuntimeBundle]) -> None:
    said = {"name": builds[0].name, "digests": [each.digest for each in builds]}
    record(tx, f"runtime_bundle.{verb}", "runtime_bundle", builds[0].id, **said)


def deprecated(tx: Tx, bundle: RuntimeBundle) -> RuntimeBundle:
    if bundle.state == "draft":
        raise conflict("not_in_this_state", f"{bundle.name} is not published.", "There is nothing to deprecate.")
    if bundle.state == "published":
        bundle = runtime_bundles.move(tx, bundle, "deprecate")
    return bundle


def to_verify(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    """One whose image is to be read, by somebody who could send it again."""
    return _one_for_writing(tx, caller, name)


def verified(tx: Tx, caller: Caller, id: str, found: str) -> RuntimeBundle:
    """Its image was read: intact, damaged (and gone now) or missing."""
    bundle = _one_for_writing(tx, caller, id)
    said = {"name": bundle.name, "digest": bundle.digest, "image": found}
    record(tx, "runtime_bundle.verify", "runtime_bundle", bundle.id, **said)
    return bundle


def expected_image(tx: Tx, caller: Caller, digest: str) -> int:
    """How large an image is that somebody wants to send."""
    access.on_platform(tx, caller, "runtime_bundle.write")
    return size_of(tx, digest, None)


def size_of(tx: Tx, digest: str, project_id: str | None) -> int:
    """As its manifest says: of the platform's own, or of this project's."""
    known = [each for each in runtime_bundles.by_digest(tx, digest) if each.project_id == project_id]
    if not known:
        raise Problem("not_found", 404, "No runtime has this image.", "Send its manifest first.")
    return known[0].size


def image_sent(tx: Tx, caller: Caller, digest: str, received: int) -> None:
    access.on_platform(tx, caller, "runtime_bundle.write")
    record(tx, "runtime_image.send", "runtime_image", digest, received=received)


def fetch_image(tx: Tx, headers: Callable[[str], str], method: str, path: str, digest: str) -> list[RuntimeBundle]:
    """A node asks for an image, and proves that it is one of ours. The versions that it may have it for: those of the
    platform, and those of projects that a machine of theirs on this node should see."""
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
    known = [each for each in runtime_bundles.by_digest(tx, digest) if each.state != "draft"]
    wanted = runtime_bundles.wanted_on(tx, node_id, [each.id for each in known if each.project_id is not None])
    known = [each for each in known if each.project_id is None or each.id in wanted]
    if not known:
        raise Problem("not_found", 404, "No runtime has this image.", "See `gpuaas runtime list --catalog`.")
    return known


def _for_writing(tx: Tx, caller: Caller, name: str) -> list[RuntimeBundle]:
    access.on_platform(tx, caller, "runtime_bundle.write")
    known = runtime_bundles.visible(tx, [], sorted(RUNTIME_BUNDLE.states))  # of the platform only
    found = [among(known, name)] if is_id(name, "rb") else named(known, name)
    return [locked(tx, each) for each in found]


def _one_for_writing(tx: Tx, caller: Caller, name: str) -> RuntimeBundle:
    builds = _for_writing(tx, caller, name)
    if len(builds) > 1:
        listed = ", ".join(f"{each.architecture} ({each.id})" for each in builds)
        raise conflict("ambiguous_runtime", f"{name} is there for several architectures.", f"Name one by id: {listed}.")
    return builds[0]


def locked(tx: Tx, found: RuntimeBundle) -> RuntimeBundle:
    """For whoever changes it."""
    bundle = runtime_bundles.by_id(tx, found.id, lock=True)
    if bundle is None:
        raise not_found("runtime bundle", found.id)
    return bundle
