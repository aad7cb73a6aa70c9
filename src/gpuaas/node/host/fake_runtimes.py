"""Runtimes of a machine that is only a model: what it would show, and how far its images have come."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gpuaas.node.host.fake_state import State
from gpuaas.node.host.interface import READING
from gpuaas.wire.node import RuntimeReport, RuntimeSpec

NO_PLACE = "The machine has no place for runtimes: an older agent started it. Restart it first."


@dataclass(frozen=True)
class Images:
    """Asked by digest."""

    is_here: Callable[[str], bool]
    arrived: Callable[[str], int]
    touched: Collection[str]
    unusable: Collection[str]

    def usable(self, digest: str) -> bool:
        return self.is_here(digest) and digest not in self.touched and digest not in self.unusable


def show(
    state: State,
    id: str,
    wanted: Sequence[RuntimeSpec],
    images: Images,
    shown: Callable[[], None],
    run: Collection[str] = (),
) -> list[RuntimeReport]:
    """`shown` is called when versions are there and no link has moved yet. Versions that are `run` stay."""
    box = state.containers.get(id)
    if box is not None and box.running and not box.has_view:
        return [RuntimeReport(s.bundle, s.version, "failed", code="no_place", message=NO_PLACE) for s in wanted]
    view, links = state.views.setdefault(id, {}), state.links.setdefault(id, {})
    view |= {_key(spec): spec.digest for spec in wanted if images.usable(spec.digest)}
    shown()
    for bundle in {*links, *(spec.bundle for spec in wanted)}:
        asked = next((spec for spec in wanted if spec.bundle == bundle and spec.current), None)
        listed = {spec.version for spec in wanted if spec.bundle == bundle and _key(spec) in view}
        if asked is not None and asked.version in listed and images.usable(asked.digest):
            links[bundle] = asked.version
        elif asked is None or links.get(bundle) not in listed:
            links.pop(bundle, None)
    for key in set(view) - {_key(spec) for spec in wanted} - set(run):
        del view[key]
    return [_report(spec, images, _key(spec) in view, links) for spec in wanted]


def _report(spec: RuntimeSpec, images: Images, is_shown: bool, links: dict[str, str]) -> RuntimeReport:
    current, arrived = links.get(spec.bundle) == spec.version, images.arrived(spec.digest)
    if is_shown and images.usable(spec.digest):
        return RuntimeReport(spec.bundle, spec.version, "ready", current)
    if images.is_here(spec.digest) and spec.digest in images.unusable:
        said = "Its image cannot be mounted on this node: it is a model of one that cannot."
        return RuntimeReport(spec.bundle, spec.version, "failed", current, code="image_unusable", message=said)
    if images.is_here(spec.digest):
        return RuntimeReport(spec.bundle, spec.version, "fetching", current, code="reading", message=READING)
    percent = min(99, arrived * 100 // max(1, spec.size)) if arrived else None
    return RuntimeReport(spec.bundle, spec.version, "fetching", current, percent)


def _key(spec: RuntimeSpec) -> str:
    return f"{spec.bundle}/{spec.version}"
