"""Runtimes of a machine that is only a model: what it would show, and how far its images have come."""

from collections.abc import Callable, Collection, Sequence

from gpuaas.node.host.fake_state import State
from gpuaas.wire.node import RuntimeReport, RuntimeSpec

NO_PLACE = "The machine has no place for runtimes: an older agent started it. Restart it first."


def show(
    state: State,
    id: str,
    wanted: Sequence[RuntimeSpec],
    is_here: Callable[[str], bool],
    arrived: Callable[[str], int],
    shown: Callable[[], None],
    run: Collection[str] = (),
) -> list[RuntimeReport]:
    """`shown` is called when versions are there and no link has moved yet. Versions that are `run` stay."""
    box = state.containers.get(id)
    if box is not None and box.running and not box.has_view:
        return [RuntimeReport(s.bundle, s.version, "failed", code="no_place", message=NO_PLACE) for s in wanted]
    view, links = state.views.setdefault(id, {}), state.links.setdefault(id, {})
    view |= {_key(spec): spec.digest for spec in wanted if is_here(spec.digest)}
    shown()
    for bundle in {*links, *(spec.bundle for spec in wanted)}:
        asked = next((spec for spec in wanted if spec.bundle == bundle and spec.current), None)
        listed = {spec.version for spec in wanted if spec.bundle == bundle and _key(spec) in view}
        if asked is not None and asked.version in listed:
            links[bundle] = asked.version
        elif asked is None or links.get(bundle) not in listed:
            links.pop(bundle, None)
    for key in set(view) - {_key(spec) for spec in wanted} - set(run):
        del view[key]
    return [_report(spec, is_here(spec.digest) and _key(spec) in view, links, arrived(spec.digest)) for spec in wanted]


def _report(spec: RuntimeSpec, ready: bool, links: dict[str, str], arrived: int) -> RuntimeReport:
    current = links.get(spec.bundle) == spec.version
    if ready:
        return RuntimeReport(spec.bundle, spec.version, "ready", current)
    percent = min(99, arrived * 100 // max(1, spec.size)) if arrived else None
    return RuntimeReport(spec.bundle, spec.version, "fetching", current, percent)


def _key(spec: RuntimeSpec) -> str:
    return f"{spec.bundle}/{spec.version}"
