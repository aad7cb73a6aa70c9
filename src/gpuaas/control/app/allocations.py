"""The machine: launch, list, show, restart, release."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpuaas.control.app import access, lease_terms, runtime_choice
from gpuaas.control.app.offers import usable
from gpuaas.control.operations import launch as launching
from gpuaas.control.operations import placing, quota, reserve, waiting
from gpuaas.control.operations import release as releasing
from gpuaas.control.operations import restart as restarting
from gpuaas.control.operations.placing import Found
from gpuaas.control.store import allocations, operations, queue, reservations, surroundings
from gpuaas.control.store.surroundings import Shown
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict, invalid, not_found
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller, Project, SshKey
from gpuaas.model.lifecycle import ALLOCATION
from gpuaas.model.node import Offer
from gpuaas.model.operation import MACHINE, Operation
from gpuaas.model.permission import PLATFORM_ROLES
from gpuaas.model.placement import Plan, Reason
from gpuaas.model.queue import MOST_WAITING
from gpuaas.model.reservation import stays_until
from gpuaas.wire.api import Launch, LeaseRequest

Started = launching.Started


def launch(
    tx: Tx, caller: Caller, request: Launch, is_lost: runtime_choice.IsLost = runtime_choice.not_lost
) -> tuple[Started, Plan]:
    """One submit for the whole group. Placed now, queued with `wait`, or refused with every reason.

    Beside each launch, with `runtime_bundle_slug` or `_id`, the operation that applies it.
    """
    project, admitted = access.admitted(tx, caller, "allocation.launch", request.project, request.offer)
    _refuse_what_is_not_built(request)
    offer = usable(admitted.offer, request.offer)
    chosen = launch_keys(admitted.keys, request.access.keys)
    lease = request.lease or LeaseRequest()
    length = lease_terms.length(admitted.policy, lease.max_duration_seconds)
    runtime, unfit = runtime_choice.for_launch(
        tx, project.id, request.runtime_bundle_id, request.runtime_bundle_slug, offer
    )
    tx.means(allocations.ONE_NAME, _name_taken(request.name))
    if request.reservation is not None:
        started, used = _from_reservation(tx, caller, request, project, offer, chosen)
        return _with_runtime(tx, started, runtime, is_lost), used
    names = reserve.machine_names(request.name, request.count)
    until = stays_until(tx.now, length, request.preemptible, tx.preemption_grace)
    if taken := request.count > 1 and allocations.name_taken(tx, project.id, names):
        raise _name_taken(taken)
    within = (project.org_id, project.id, offer, request.count, admitted.quotas)
    over, found = quota.exceeded(tx, *within, free_at=until), Found(Plan(()))
    if not over:
        wanted = launching.wanted(offer, project.org_id, request.count)
        found = placing.find(tx, replace(wanted, free_at=until, unfit=unfit))
        if quota.counts_more_there(offer, found.plan):
            over = quota.exceeded(tx, *within, free_at=until, seats=found.plan.seats)
    if over and (not request.wait or any(hopeless for _, hopeless in over)):
        raise _over_quota([reason for reason, _ in over])
    if over:
        found = Found(Plan((), tuple(reason for reason, _ in over)))
    if not found.fits and not request.wait:
        raise no_capacity(offer.slug, hide_nodes(caller, found.plan))
    if not found.fits and queue.waiting(tx, project.id) >= MOST_WAITING:
        raise _line_too_long()
    same: dict[str, Any] = {
        "org_id": project.org_id,
        "project_id": project.id,
        "offer_id": offer.id,
        "owner_id": caller.user_id,
        "group_id": tx.ids.new("gr"),
        "key_ids": [key.id for key in chosen],
        "preemptible": request.preemptible,
    }
    drafts = [{"id": tx.ids.new("al"), "name": name, **same} for name in names]
    started = launching.start(tx, found, drafts, offer, project, chosen)
    group = [allocation for allocation, _ in started]
    if not found.fits:
        expires = tx.now + timedelta(seconds=request.wait_seconds) if request.wait_seconds else None
        waiting.begin(tx, group, offer, request.priority, expires, found.plan)
    lease_terms.begin(tx, group, length, lease.idle_seconds)
    tx.audit(
        "allocation.launch",
        org_id=project.org_id,
        project_id=project.id,
        kind="allocation",
        id=drafts[0]["id"],
        names=names,
        ids=[draft["id"] for draft in drafts],
        offer=offer.slug,
        **({"preemptible": True} if request.preemptible else {}),
        **({"runtime": runtime.name} if runtime else {}),
    )
    return _with_runtime(tx, started, runtime, is_lost), hide_nodes(caller, found.plan)


def _with_runtime(
    tx: Tx, started: Started, runtime: runtime_choice.Choice | None, is_lost: runtime_choice.IsLost
) -> Started:
    """The launches first, each with its machine as it is now; then what is applied on each."""
    if runtime is None:
        return started
    changed = [runtime_choice.at_launch(tx, allocation, runtime, is_lost) for allocation, _ in started]
    return [(after, launched) for (_, launched), (after, _) in zip(started, changed, strict=True)] + changed


def _from_reservation(
    tx: Tx, caller: Caller, request: Launch, project: Project, offer: Offer, chosen: Sequence[SshKey]
) -> tuple[Started, Plan]:
    """On the place that is kept for it, until its window ends. Never in line: it has its place, or is told why not."""
    assert request.reservation is not None
    seen = reservations.find(tx, request.reservation, [project.id])
    reservation = reservations.by_id(tx, seen[0].id, lock=True) if seen else None
    if reservation is None:
        raise not_found("reservation", request.reservation)
    if reservation.state != "booked" or not reservation.starts_at <= tx.now < reservation.ends_at:
        over = reservation.state != "booked" or tx.now >= reservation.ends_at
        when = "is over" if over else f"begins at {reservation.starts_at:%Y-%m-%d %H:%M} UTC"
        raise conflict(
            "not_its_time", f"The reservation {reservation.name!r} {when}.", "See `gpuaas reservation ls -a`."
        )
    if (offer.id, request.count) != (reservation.offer_id, reservation.count) or request.preemptible or request.wait:
        raise invalid(
            f"The reservation {reservation.name!r} is for another launch than this.",
            "Launch the offer and the count that were booked, all at once, neither `preemptible` nor with `wait`.",
            code="not_what_was_reserved",
        )
    lease = request.lease or LeaseRequest()
    ends_at = reservation.ends_at
    if lease.max_duration_seconds is not None:
        ends_at = min(ends_at, tx.now + timedelta(seconds=lease.max_duration_seconds))
    started, found = reserve.convert(
        tx, reservation, project, offer, caller.user_id, request.name, chosen, ends_at, lease.idle_seconds
    )
    if not started and any(reason.code.endswith("quota_exceeded") for reason in found.reasons):
        raise _over_quota(found.reasons)
    if not started and found.reasons[0].code == "name_taken":
        raise _name_taken(request.name)
    if not started:
        raise conflict(
            "reservation_not_ready",
            f"The place of the reservation {reservation.name!r} is not free yet.",
            "It is being made free, or looked for elsewhere: try again in a moment. `gpuaas reservation show` tells.",
        )
    return started, hide_nodes(caller, found)


def list_allocations(
    tx: Tx, caller: Caller, project_name: str | None, live: bool, after: tuple[datetime, str] | None, limit: int
) -> list[Allocation]:
    return allocations.page(tx, _where(tx, caller, project_name), live=live, after=after, limit=limit)


def list_shown(
    tx: Tx, caller: Caller, project_name: str | None, live: bool, after: tuple[datetime, str] | None, limit: int
) -> list[Shown]:
    """The same with what people are shown of them."""
    return surroundings.page(tx, _where(tx, caller, project_name), live, after, limit)


def _where(tx: Tx, caller: Caller, project_name: str | None) -> list[str]:
    if project_name is None:
        return list(access.projects(tx, caller, "allocation.read"))
    return [access.in_project(tx, caller, "allocation.read", project_name).id]


def show(tx: Tx, caller: Caller, name: str) -> Allocation:
    return find(tx, caller, "allocation.read", name, lock=False)


def shown(tx: Tx, caller: Caller, name: str) -> Shown:
    visible = access.projects(tx, caller, "allocation.read")
    found = surroundings.find(tx, name, list(visible))
    _only(tx, "allocation.read", name, visible, [each.item for each in found])
    return found[0]


def connectable(tx: Tx, caller: Caller, name: str) -> Allocation:
    """One that the caller may open streams to, in whatever state it is."""
    return find(tx, caller, "allocation.connect", name, lock=False)


def restart(tx: Tx, caller: Caller, name: str, confirm: str) -> tuple[Allocation, Operation]:
    allocation = find(tx, caller, "allocation.restart", name, lock=True)
    _confirmed(allocation, confirm, "restart")
    if "restart" not in allocation.allowed_actions:
        raise not_now(allocation, "restart")
    operation = restarting.start(tx, allocation)
    return audited(tx, allocation, "allocation.restart", operation)


def release(tx: Tx, caller: Caller, name: str, confirm: str) -> tuple[Allocation, Operation]:
    """Asking twice is not an error: the second answer names the release that is under way or done."""
    allocation = find(tx, caller, "allocation.release", name, lock=True)
    _confirmed(allocation, confirm, "release")
    if allocation.state in ("releasing", "released"):
        operation = operations.open_(tx, allocation.id, MACHINE) or _latest_operation(tx, allocation)
    else:
        operation = releasing.start(tx, allocation)
    return audited(tx, allocation, "allocation.release", operation)


def find(tx: Tx, caller: Caller, action: str, name: str, *, lock: bool) -> Allocation:
    visible = access.projects(tx, caller, action)
    return _only(tx, action, name, visible, allocations.find(tx, name, list(visible), lock=lock))


def _only(
    tx: Tx, action: str, name: str, visible: Mapping[str, tuple[Project, str]], found: Sequence[Allocation]
) -> Allocation:
    if not found:
        raise not_found("allocation", name)
    if len(found) > 1:
        listed = ", ".join(f"{item.id} in {visible[item.project_id][0].slug}" for item in found)
        raise conflict("ambiguous", f"{name!r} exists in several projects.", f"Use the id: {listed}")
    allocation = found[0]
    role = visible[allocation.project_id][1]
    access.on_object(tx, action, role)
    return allocation


def launch_keys(mine: list[SshKey], wanted: list[str] | None) -> list[SshKey]:
    if not mine:
        raise invalid(
            "You have no SSH key yet, so nobody could get into this machine.",
            "Add one first: `gpuaas key add laptop ~/.ssh/id_ed25519.pub`.",
            code="no_ssh_key",
        )
    return mine if wanted is None else chosen_keys(mine, wanted)


def chosen_keys(registered: Sequence[SshKey], wanted: Sequence[str]) -> list[SshKey]:
    """By id or name, each once."""
    chosen = []
    for name in wanted:
        fits = [key for key in registered if name in (key.id, key.name)]
        if not fits:
            raise not_found("key", name)
        chosen.append(fits[0])
    return list(dict.fromkeys(chosen))


def _refuse_what_is_not_built(request: Launch) -> None:
    """Parts of the launch body whose machinery comes later: refused by name, never ignored."""
    asked = {
        "access.grants": bool(request.access.grants),
        "storage": bool(request.storage),
    }
    for field, present in asked.items():
        if present:
            raise invalid(
                f"This server cannot do {field!r} yet.",
                f"Leave {field!r} out; the machine itself launches without it.",
                code="not_available",
                field=field,
            )


def hide_nodes(caller: Caller, found: Plan) -> Plan:
    """Only operators are told which machine is meant."""
    if caller.platform_role in PLATFORM_ROLES:
        return found
    return replace(
        found,
        seats=tuple(replace(seat, node_name="") for seat in found.seats),
        reasons=tuple(Reason(r.code, r.message, r.count) for r in found.reasons),
    )


def no_capacity(offer: str, found: Plan) -> Problem:
    why = "; ".join(f"{reason.message} ({reason.count})" for reason in found.reasons)
    return conflict(
        "no_capacity",
        f"Nothing fits {offer} right now: {why}.",
        "Launch with `wait` to queue, pick another offer, or try later.",
        reasons=[reason.__dict__ for reason in found.reasons],
    )


def _line_too_long() -> Problem:
    return conflict(
        "too_many_waiting",
        f"{MOST_WAITING} launches of this project are in line already.",
        "Wait until some are placed, or take some out: `gpuaas queue`, `gpuaas release NAME`. A group counts once.",
    )


def _over_quota(reasons: Sequence[Reason]) -> Problem:
    return conflict(
        "quota_exceeded",
        f"Over quota: {'; '.join(reason.message for reason in reasons)}.",
        "Release something, launch with `wait` to queue, or ask for more: `gpuaas quota ls`.",
        reasons=[reason.__dict__ for reason in reasons],
    )


def _name_taken(name: str) -> Problem:
    return conflict(
        "name_taken", f"The project has a machine called {name!r}.", "Choose another name, or release that one first."
    )


def _confirmed(allocation: Allocation, confirm: str, verb: str) -> None:
    if confirm != allocation.name:
        raise invalid(
            f"To {verb} {allocation.name!r}, `confirm` must repeat its name.",
            f"Send confirm: {allocation.name!r}.",
            code="not_confirmed",
        )


def not_now(allocation: Allocation, verb: str) -> Problem:
    if allocation.state == "failed":
        message, hint = "It failed before it ever ran, so there is no machine.", "Release it and launch again."
    else:
        message = f"It is {allocation.state}; {verb} works while {' or '.join(ALLOCATION.while_(verb))}."
        hint = f"Right now you can: {', '.join(allocation.allowed_actions) or 'only wait'}."
    return conflict("not_in_this_state", message, hint, allowed_actions=list(allocation.allowed_actions))


def _latest_operation(tx: Tx, allocation: Allocation) -> Operation:
    return operations.page(tx, [allocation.project_id], allocation.id, None, 1)[0]


def audited(tx: Tx, before: Allocation, action: str, operation: Operation, **more: Any) -> tuple[Allocation, Operation]:
    after = allocations.by_id(tx, before.id)
    assert after is not None
    tx.audit(
        action,
        org_id=before.org_id,
        project_id=before.project_id,
        kind="allocation",
        id=before.id,
        name=before.name,
        was=before.state,
        state=after.state,
        operation=operation.id,
        **more,
    )
    return after, operation
