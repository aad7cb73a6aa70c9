"""Where the machines of one request go: found by the counts, decided by the plan, under the nodes' row locks.

One machine: the fullest node that fits and that nobody works on is locked and planned on alone. Where only nodes are
left that somebody works on, it waits for them in line. Nodes that turned out to be of no use must not stay locked
then: two who wait like that wait in a circle. Several machines, and what the counts cannot see (a node with
enough GPUs and too little memory), are planned over everything; the nodes are locked in order and looked at again.
"""

from dataclasses import dataclass

from gpuaas.control.placement.plan import plan
from gpuaas.control.store import capacity, slots
from gpuaas.control.store.capacity import Near
from gpuaas.control.store.transaction import Carefully, Tx
from gpuaas.model.placement import NodeView, Plan, Wanted

NEAREST_FIRST: tuple[Near, ...] = ("linked", "numa", "anywhere")
MISFITS = 8  # nodes that were counted as fitting and were not; after that everything is looked at


@dataclass(frozen=True)
class Found:
    """A plan whose nodes are locked, as they are; or why there is none."""

    plan: Plan
    nodes: tuple[NodeView, ...] = ()

    @property
    def seat(self) -> int | None:
        """For the one machine on one node, where it was looked for."""
        return self.nodes[0].seat if len(self.nodes) == 1 else None

    @property
    def fits(self) -> bool:
        return self.plan.fits


def find(tx: Tx, wanted: Wanted) -> Found:
    if wanted.count == 1:
        tried: list[str] = []
        for near in NEAREST_FIRST if wanted.gpu_count > 1 else NEAREST_FIRST[-1:]:
            found = _unlocked(tx, wanted, near, tried)
            if tried and not (found or tx.careful):
                raise Carefully
            found = found or _in_line(tx, wanted, near, tried)
            if found:
                return found
    return _everywhere(tx, wanted)


def _unlocked(tx: Tx, wanted: Wanted, near: Near, tried: list[str]) -> Found | None:
    while len(tried) < MISFITS:
        take_back = tx.attempt() if tx.careful else lambda: None
        node = slots.lock_best(tx, wanted, near, tried)
        if node is not None:
            found = _planned(tx, node, wanted)
            if found.fits:
                return found
            tried.append(node.id)
        take_back()
        if node is None:
            return None
    return None


def _in_line(tx: Tx, wanted: Wanted, near: Near, tried: list[str]) -> Found | None:
    """Whoever had the node before us may have left something."""
    while len(tried) < MISFITS:
        node_id = capacity.best(tx, wanted, near, tried)
        if node_id is None:
            return None
        take_back = tx.attempt()
        capacity.lock(tx, [node_id])
        for node in slots.snapshot(tx, [node_id]):
            found = _planned(tx, node, wanted)
            if found.fits:
                return found
        take_back()
        tried.append(node_id)
    return None


def _everywhere(tx: Tx, wanted: Wanted) -> Found:
    first = plan(slots.snapshot(tx), wanted)
    if not first.fits:
        return Found(first)
    node_ids = sorted({seat.node_id for seat in first.seats})
    take_back = tx.attempt()
    capacity.lock(tx, node_ids)
    nodes = slots.snapshot(tx, node_ids)
    again = plan(nodes, wanted)
    if again.fits:
        return Found(again, tuple(nodes))
    take_back()
    locked = set(capacity.lock_usable(tx, wanted))  # somebody was faster; from here on nobody is
    nodes = slots.snapshot(tx)
    last = plan([node for node in nodes if node.id in locked], wanted)
    return Found(last, tuple(nodes)) if last.fits else Found(Plan((), plan(nodes, wanted).reasons or last.reasons))


def _planned(tx: Tx, node: NodeView, wanted: Wanted) -> Found:
    return Found(plan([node], wanted), (node,))
