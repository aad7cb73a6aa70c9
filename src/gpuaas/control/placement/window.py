"""Nodes as they will be at a later time, and the next time at which a request would fit. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuaas.control.placement.plan import plan
from gpuaas.model.placement import NodeView, Wanted

MOST = 64  # times that are tried


def at(nodes: Sequence[NodeView], gone_by: Mapping[str, datetime], moment: datetime) -> list[NodeView]:
    """Who is certain to be gone by then is gone; all others stay. `gone_by`: by slot."""
    gone = {slot_id for slot_id, by in gone_by.items() if by <= moment}
    return [
        replace(node, slots=tuple(replace(slot, claimed=slot.claimed and slot.id not in gone) for slot in node.slots))
        for node in nodes
    ]


def nearest(
    nodes: Sequence[NodeView], wanted: Wanted, gone_by: Mapping[str, datetime], latest: datetime
) -> datetime | None:
    """When a window of the same length would be free: it can only begin where somebody else ends."""
    assert wanted.starts_at is not None
    assert wanted.free_at is not None
    length: timedelta = wanted.free_at - wanted.starts_at
    ends = {*gone_by.values(), *(kept.free_at for node in nodes for slot in node.slots for kept in slot.kept)}
    for moment in sorted(end for end in ends if wanted.starts_at < end <= latest)[:MOST]:
        then = replace(wanted, starts_at=moment, free_at=moment + length)
        if plan(at(nodes, gone_by, moment), then).fits:
            return moment
    return None
