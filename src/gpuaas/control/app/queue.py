"""The line of launches that wait: where one's own are in it, and why they wait."""

from collections import Counter
from dataclasses import dataclass

from gpuaas.control.app import access
from gpuaas.control.operations import waiting
from gpuaas.control.store import allocations, offers, queue
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller
from gpuaas.model.permission import PLATFORM_ROLES
from gpuaas.model.queue import Ticket


@dataclass(frozen=True)
class Waiting:
    position: int  # in the line for this GPU model, of all tenants
    ticket: Ticket
    machines: list[Allocation]
    kept: bool  # nodes are held for it
    named: bool  # the caller may know of nodes
    offer: str  # its slug


def list_waiting(tx: Tx, caller: Caller, project_name: str | None) -> list[Waiting]:
    if project_name is None:
        visible = set(access.projects(tx, caller, "queue.read"))
    else:
        visible = {access.in_project(tx, caller, "queue.read", project_name).id}
    line = waiting.line(tx)
    slugs = offers.slugs(tx, {ticket.offer_id for ticket in line})
    found, places = [], Counter[str]()
    for ticket in line:
        places[ticket.gpu_model] += 1
        if ticket.project_id in visible:
            group = [item for item in allocations.of_group(tx, ticket.group_id) if item.state == "queued"]
            kept, named = bool(queue.held(tx, ticket.group_id)), caller.platform_role in PLATFORM_ROLES
            if group:
                slug = slugs[ticket.offer_id]
                found.append(Waiting(places[ticket.gpu_model], ticket, group, kept, named, slug))
    return found
