"""When a request would fit, as far as anybody knows: from the times at which those who are there have to be gone."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpuaas.control.placement.plan import plan
from gpuaas.model.placement import NodeView, Wanted


def earliest(nodes: Sequence[NodeView], wanted: Wanted, ends: Mapping[str, datetime]) -> datetime | None:
    """`ends`: by slot. None: it does not fit even then. Who leaves before their time makes it earlier."""
    moments = sorted(set(ends.values()))
    # Whatever fits at one moment fits at every later one, so that the first can be searched for.
    found = bisect_left(moments, True, key=lambda moment: plan(_at(nodes, ends, moment), wanted).fits)
    return moments[found] if found < len(moments) else None


def _at(nodes: Sequence[NodeView], ends: Mapping[str, datetime], moment: datetime) -> list[NodeView]:
    gone = {slot_id for slot_id, end in ends.items() if end <= moment}
    return [
        replace(node, slots=tuple(replace(slot, claimed=slot.claimed and slot.id not in gone) for slot in node.slots))
        for node in nodes
    ]
