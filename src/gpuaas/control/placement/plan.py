"""The plan function: all `count` machines find a place, or none does and every reason is counted."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from gpuaas.control.placement.filters import NODE_FILTERS, SLOT_FILTERS, Why
from gpuaas.control.placement.scores import Score, neighbours, packing
from gpuaas.model.placement import NodeView, Plan, Reason, Seat, SlotView, Wanted


def plan(nodes: Sequence[NodeView], wanted: Wanted) -> Plan:
    tally = _Tally()
    usable = {node.id: node for node in nodes}
    left = {node.id: free for node in nodes if (free := _free_slots(node, wanted, tally)) is not None}
    # The best seat of each node. Who takes one changes what its own node has to offer, and no other.
    offered = [best for id, free in left.items() if (best := _best(usable[id], free, wanted))]
    heapify(offered)
    seats: list[Seat] = []
    for _ in range(wanted.count):
        if not offered:
            for id, free in left.items():
                if free:
                    tally.add(_misfit(usable[id], free, wanted), usable[id])
            return Plan((), tally.reasons(nodes, wanted, found=len(seats)))
        _, seat = heappop(offered)
        seats.append(seat)
        left[seat.node_id] = [slot for slot in left[seat.node_id] if slot not in seat.slots]
        if more := _best(usable[seat.node_id], left[seat.node_id], wanted):
            heappush(offered, more)
    return Plan(tuple(seats))


def _free_slots(node: NodeView, wanted: Wanted, tally: "_Tally") -> list[SlotView] | None:
    for node_filter in NODE_FILTERS:
        if why := node_filter(node, wanted):
            tally.add(why, node, len(node.slots) or 1)
            return None
    if not node.slots:
        tally.add(("no_slots", "a machine has no slots to give out"), node)
    free = []
    for slot in node.slots:
        for slot_filter in SLOT_FILTERS:
            if why := slot_filter(slot, wanted):
                tally.add(why, node)
                break
        else:
            free.append(slot)
    return free


def _best(node: NodeView, free: list[SlotView], wanted: Wanted) -> tuple[Score, Seat] | None:
    for realisation in wanted.realisations:
        if chosen := _choose(node, free, wanted, realisation):
            return packing(node, free, chosen), Seat(node.id, tuple(chosen), realisation, node.name)
    return None


def _choose(node: NodeView, free: list[SlotView], wanted: Wanted, realisation: str) -> list[SlotView]:
    if len(free) != len(node.slots) and (realisation == "baremetal" or wanted.isolation == "dedicated_node"):
        return []
    if realisation == "baremetal":
        chosen = free if sum(slot.gpu_count for slot in free) == wanted.gpu_count else []
    else:
        chosen = neighbours(free, wanted.gpu_count)
    if wanted.isolation == "dedicated_node" and chosen:
        chosen = free  # the rest of the node is taken too, so that nobody else comes in
    enough = sum(slot.cpus for slot in chosen) >= wanted.cpus and sum(s.memory_mib for s in chosen) >= wanted.memory_mib
    return chosen if enough else []


def _misfit(node: NodeView, free: list[SlotView], wanted: Wanted) -> Why:
    if wanted.needs_whole_node and len(free) != len(node.slots):
        return "node_not_whole", "a machine is not free as a whole, and this takes a whole one"
    if wanted.realisations == ("baremetal",) and sum(slot.gpu_count for slot in free) != wanted.gpu_count:
        return "other_size", f"a whole machine does not have {wanted.gpu_count} GPUs"
    return "does_not_fit", "a machine has free slots, but not enough of them together"


class _Tally:
    def __init__(self) -> None:
        self._counts: Counter[Why] = Counter()
        self._nodes: dict[Why, set[str]] = defaultdict(set)

    def add(self, why: Why, node: NodeView, count: int = 1) -> None:
        self._counts[why] += count
        self._nodes[why].add(node.name)

    def reasons(self, nodes: Sequence[NodeView], wanted: Wanted, found: int) -> tuple[Reason, ...]:
        if not nodes:
            return (Reason("no_nodes", "no machine has joined yet", 0),)
        rows = [
            Reason(code, message, count, tuple(sorted(self._nodes[code, message])))
            for (code, message), count in sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        ]
        if found:
            rows.insert(0, Reason("not_enough", f"{found} of {wanted.count} fit; it is all or none", found))
        return tuple(rows)
