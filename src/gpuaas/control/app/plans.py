"""What a launch would do right now, without doing it; and when it would fit, as far as anybody knows."""

from dataclasses import replace
from datetime import datetime

from gpuaas.control.app import access, lease_terms, runtime_choice
from gpuaas.control.app.allocations import hide_nodes
from gpuaas.control.app.offers import usable_offer
from gpuaas.control.operations import launch, quota
from gpuaas.control.placement.free_time import earliest
from gpuaas.control.placement.plan import plan as planned
from gpuaas.control.placement.window import nearest
from gpuaas.control.store import bookings, leases, quotas, slots
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.placement import NodeView, Plan, Wanted
from gpuaas.model.reservation import HORIZON, gone_by, stays_until


def plan(
    tx: Tx,
    caller: Caller,
    offer_name: str,
    project_name: str | None,
    count: int,
    runtime_id: str | None = None,
    runtime_slug: str | None = None,
    max_seconds: int | None = None,
    preemptible: bool = False,
) -> Plan:
    """`max_seconds`, `preemptible`: as it would be launched. Who is gone by then may use what is reserved for later."""
    project = access.in_project(tx, caller, "allocation.plan", project_name)
    offer = usable_offer(tx, offer_name)
    runtime, unfit, never = runtime_choice.for_plan(tx, project.id, runtime_id, runtime_slug, offer)
    length = lease_terms.length(leases.policy(tx, project.id), max_seconds)
    until = stays_until(tx.now, length, preemptible, tx.preemption_grace)
    within = (project.org_id, project.id, offer, count, quotas.of(tx, project.org_id, project.id))
    nodes = slots.snapshot(tx)
    wanted = replace(launch.wanted(offer, project.org_id, count), free_at=until, unfit=unfit)
    if never:
        found = Plan((), runtime_choice.everywhere(never, {node.id: node.name for node in nodes}))
    else:
        found = planned(nodes, wanted)
    over = quota.exceeded(tx, *within, free_at=until, seats=found.seats)
    if over:
        found = Plan((), (*(reason for reason, _ in over), *found.reasons))
    elif not found.fits and not never:
        found = replace(found, earliest=_earliest(tx, nodes, wanted))
    return hide_nodes(caller, replace(found, runtime=runtime.name if runtime else None))


def _earliest(tx: Tx, nodes: list[NodeView], wanted: Wanted) -> datetime | None:
    """From who has to be gone by when: leases, who gives way, what is being scrubbed. That somebody is idle now says
    nothing. Who is gone again by then finds a gap before a reservation too."""
    known = {stay.slot_id: gone_by(stay, tx.now, None) for stay in bookings.stays(tx)}
    ends = {slot_id: by for slot_id, by in known.items() if by is not None}
    if wanted.free_at is None:
        return earliest(nodes, wanted, ends)
    return nearest(nodes, replace(wanted, starts_at=tx.now), ends, tx.now + HORIZON)
