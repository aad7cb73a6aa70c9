"""Which version of the catalog is meant, and whether a machine can use it: before it is placed, and where it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuaas.control.app import runtime_bundles as catalog
from gpuaas.control.operations import fitness
from gpuaas.control.operations import runtimes as changing
from gpuaas.control.operations.fitness import Place
from gpuaas.control.store import runtime_bundles
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict, invalid, not_found
from gpuaas.model.allocation import Allocation
from gpuaas.model.node import Offer
from gpuaas.model.operation import Operation
from gpuaas.model.placement import Reason
from gpuaas.model.runtime import RuntimeBundle

IsLost = Callable[[RuntimeBundle], bool]  # whether the server has lost its image


def not_lost(bundle: RuntimeBundle) -> bool:
    return False


@dataclass(frozen=True)
class Choice:
    """A version, in the builds that a machine may get: by id that one, by name one for each architecture."""

    builds: tuple[RuntimeBundle, ...]
    by_name: bool

    @property
    def name(self) -> str:
        return self.builds[0].name

    def at(self, place: Place | None) -> RuntimeBundle:
        """What is used there. While a machine waits for its place, the first stands for all (fitness.settle)."""
        return self.builds[0] if place is None else fitness.build_for(self.builds, place.architecture)


def at_launch(tx: Tx, allocation: Allocation, choice: Choice, is_lost: IsLost) -> tuple[Allocation, Operation]:
    """An operation of its own: the machine is active without it. It was chosen before the machine had its place."""
    place = fitness.place(tx, allocation)
    bundle = choice.at(place)
    fits(place, bundle)
    has_image(tx, allocation, bundle, is_lost)
    return changing.start(tx, allocation, bundle, "apply", any_architecture=choice.by_name)


def for_launch(
    tx: Tx, project_id: str, id: str | None, slug: str | None, offer: Offer
) -> tuple[Choice | None, dict[str, str]]:
    """What was chosen, and the nodes that cannot use it. Refused where no node that has the offer's GPUs ever could."""
    choice, unfit, never = for_plan(tx, project_id, id, slug, offer)
    if choice is not None and never:
        raise _incompatible(choice.name, sorted(set(never.values())))
    return choice, unfit


def for_plan(
    tx: Tx, project_id: str, id: str | None, slug: str | None, offer: Offer
) -> tuple[Choice | None, dict[str, str], dict[str, str]]:
    """What was chosen, why it cannot be used, by node; and the same again if no node of the offer ever can."""
    if id is None and slug is None:
        return None, {}, {}
    choice = chosen(tx, project_id, id, slug, None)
    unfit = fitness.unfit(tx, [choice.builds], offer)
    there = fitness.candidates(tx, offer)
    return choice, unfit, {node: unfit[node] for node in there} if there <= set(unfit) else {}


def everywhere(why: Mapping[str, str], names: Mapping[str, str]) -> tuple[Reason, ...]:
    """Why by node, as reasons of a plan, the most frequent first."""
    nodes: dict[str, list[str]] = {}
    for node, said in why.items():
        nodes.setdefault(said, []).append(names.get(node, node))
    often = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        Reason("runtime_unfit", f"the machine cannot use the runtime: {said}", len(found), tuple(sorted(found)))
        for said, found in often
    )


def chosen(tx: Tx, project_id: str, id: str | None, slug: str | None, version: str | None) -> Choice:
    """By id, by name, or by both, if they mean the same. Nothing is ever taken instead."""
    if id is None and slug is None:
        raise invalid("Say which runtime.", "Give `runtime_bundle_id` or `runtime_bundle_slug`; see the catalog.")
    known = runtime_bundles.visible(tx, [project_id], ("deprecated", "published"))
    usable = [each for each in known if each.state == "published"]
    if id is None:
        assert slug is not None
        return Choice(tuple(_named(known, usable, slug if version is None else f"{slug}:{version}")), by_name=True)
    by_id = next((each for each in known if each.id == id), None)
    if by_id is None:
        raise not_found("runtime bundle", id)
    if by_id.state == "deprecated":
        raise _deprecated(by_id)
    if slug is not None and not _means(usable, slug, version, by_id):
        raise invalid(
            f"{id} is {by_id.name}, and not {slug}{':' + version if version else ''}.",
            "Give one of the two, or both of the same runtime.",
            code="runtime_mismatch",
        )
    return Choice((by_id,), by_name=False)


def _named(known: list[RuntimeBundle], usable: list[RuntimeBundle], spec: str) -> list[RuntimeBundle]:
    try:
        return catalog.named(catalog.platform_first(usable), spec)
    except Problem:
        retired = [each for each in known if each.state == "deprecated" and spec in (each.name, each.slug)]
        if retired:
            raise _deprecated(retired[0]) from None
        raise


def _means(usable: list[RuntimeBundle], slug: str, version: str | None, bundle: RuntimeBundle) -> bool:
    if slug == bundle.slug and version in (None, bundle.version):
        return True
    try:
        named = catalog.named(usable, slug if version is None else f"{slug}:{version}")[0]
    except Problem:
        return False
    return (named.slug, named.version) == (bundle.slug, bundle.version)


def fits(place: Place | None, bundle: RuntimeBundle) -> None:
    """Refused, with every reason, where the machine is; one that waits is placed only where it fits."""
    if place is not None and (why := fitness.why_not(bundle, place)):
        raise _incompatible(bundle.name, why.split("; "))


def has_image(tx: Tx, allocation: Allocation, bundle: RuntimeBundle, is_lost: IsLost) -> None:
    """Refused where its node could only ask for ever. A node that has a machine with it needs nobody for it."""
    if not is_lost(bundle):
        return
    if allocation.node_id is None or not runtime_bundles.wanted_on(tx, allocation.node_id, [bundle.id]):
        said = f"The image of {bundle.name} was damaged on the server, which has removed it."
        hint = f"Whoever publishes it sends it again, where it was built: `gpuaas runtime deploy {bundle.name}`."
        raise conflict("image_lost", said, hint)


def _incompatible(name: str, reasons: list[str]) -> Problem:
    return Problem(
        "runtime_incompatible",
        409,
        f"{name} cannot be used there: {'; '.join(reasons)}.",
        "Choose another version, or another machine.",
        extra={"reasons": reasons},
    )


def _deprecated(bundle: RuntimeBundle) -> Problem:
    hint = f"See its other versions: GET /api/v1/runtime-bundles/{bundle.slug}/versions."
    return conflict("runtime_deprecated", f"{bundle.name} is deprecated: nobody gets it anew.", hint)
