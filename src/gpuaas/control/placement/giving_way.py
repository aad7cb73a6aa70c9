"""Which preemptible machines give way to a request: the fewest, of those the cheapest. Pure, as all of placement.

A machine has its place on one node, so that for each machine of the request every node is asked what it would cost
there. On a node everybody who may be asked is imagined gone, and then let stay again as long as it still fits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gpuaas.control.placement.plan import plan
from gpuaas.model.placement import NodeView, Seat, Wanted


@dataclass(frozen=True)
class Candidate:
    """A machine that may be asked. `asked` before, for the same request: it costs nothing more."""

    allocation_id: str
    node_id: str
    slot_ids: frozenset[str]
    gpus: int
    lost_seconds: float  # how long it has run
    asked: bool = False

    @property
    def cost(self) -> "Cost":
        return (0, 0, 0.0) if self.asked else (1, self.gpus, self.gpus * self.lost_seconds)


Cost = tuple[int, int, float]  # machines, GPUs, GPU seconds of work


@dataclass(frozen=True)
class GivingWay:
    """Who has to go, and where the request has its place then."""

    machines: tuple[Candidate, ...]
    seats: tuple[Seat, ...]


def choose(
    nodes: Sequence[NodeView], wanted: Wanted, candidates: Sequence[Candidate], leaving: frozenset[str]
) -> GivingWay | None:
    """None: it would not fit even then, and nobody is asked. `leaving`: slots that are free soon anyway."""
    soon = [_without(node, leaving) for node in nodes]
    found = plan(soon, wanted)
    if found.fits:
        return GivingWay((), found.seats)
    one = replace(wanted, count=1)
    now = {node.id: node for node in soon}
    there: dict[str, list[Candidate]] = {node.id: [] for node in soon}
    for item in candidates:
        there[item.node_id].append(item)
    chosen: list[Candidate] = []
    for _ in range(wanted.count):
        best: tuple[Cost, list[Candidate], Seat] | None = None
        for node in now.values():
            option = _cheapest(node, one, [item for item in there[node.id] if item not in chosen])
            if option is not None and (best is None or option[0] < best[0]):
                best = option
        if best is None:
            return None
        _, gone, seat = best
        chosen += gone
        now[seat.node_id] = _taken(_without(now[seat.node_id], _slots(gone)), seat)
    dearest = sorted(chosen, key=lambda item: item.cost, reverse=True)
    kept = _spared(dearest, lambda left: plan([_without(node, _slots(left)) for node in soon], wanted).fits)
    found = plan([_without(node, _slots(kept)) for node in soon], wanted)
    return GivingWay(tuple(kept), found.seats) if found.fits else None


def _cheapest(node: NodeView, one: Wanted, here: list[Candidate]) -> tuple[Cost, list[Candidate], Seat] | None:
    def fits(gone: Iterable[Candidate]) -> bool:
        return plan([_without(node, _slots(gone))], one).fits

    if not fits(here):
        return None
    small_stay = _spared(sorted(here, key=lambda item: (item.asked, item.gpus, -item.lost_seconds)), fits)
    dear_stay = _spared(sorted(here, key=lambda item: item.cost, reverse=True), fits)
    gone = min(small_stay, dear_stay, key=_total)
    return _total(gone), gone, plan([_without(node, _slots(gone))], one).seats[0]


def _spared(gone: Sequence[Candidate], fits: Callable[[list[Candidate]], bool]) -> list[Candidate]:
    """Those who are left when everybody stays, in this order, who can."""
    left = list(gone)
    for item in gone:
        fewer = [other for other in left if other is not item]
        if fits(fewer):
            left = fewer
    return left


def _total(gone: Sequence[Candidate]) -> Cost:
    costs = [item.cost for item in gone]
    return sum(c[0] for c in costs), sum(c[1] for c in costs), sum(c[2] for c in costs)


def _slots(gone: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(id for item in gone for id in item.slot_ids)


def _without(node: NodeView, gone: frozenset[str]) -> NodeView:
    slots = tuple(replace(slot, claimed=slot.claimed and slot.id not in gone) for slot in node.slots)
    return replace(node, slots=slots)


def _taken(node: NodeView, seat: Seat) -> NodeView:
    taken = {slot.id for slot in seat.slots}
    return replace(node, slots=tuple(replace(slot, claimed=slot.claimed or slot.id in taken) for slot in node.slots))
