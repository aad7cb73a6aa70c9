"""From model to wire: what goes out, and nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from gpuaas.control.app import lease_terms
from gpuaas.control.store.drains import Drain
from gpuaas.control.store.events import AuditEntry, Event
from gpuaas.control.store.surroundings import Shown, Surroundings
from gpuaas.kit.ids import is_id
from gpuaas.model.allocation import Allocation, ssh_port
from gpuaas.model.break_glass import BreakGlass
from gpuaas.model.identity import Member, Org, Project, SshKey, Token, User
from gpuaas.model.invitation import Invitation
from gpuaas.model.lease import GRACE, STOPPED, Deadline, Lease
from gpuaas.model.lifecycle import SLOT
from gpuaas.model.login import Login
from gpuaas.model.node import Hold, LastScrub, Node, Offer, Slot
from gpuaas.model.operation import Operation
from gpuaas.model.placement import Plan, Reason
from gpuaas.wire import api

LOGIN_USER = "gpu"


def user(user: User) -> api.UserView:
    return api.UserView(
        user.id, user.email, user.name, user.platform_role, user.created_at, user.disabled_at, user.kind
    )


def org(org: Org, role: str | None) -> api.OrgView:
    return api.OrgView(org.id, org.slug, org.name, role, org.created_at)


def project(project: Project, role: str | None) -> api.ProjectView:
    return api.ProjectView(
        project.id, project.org_id, project.slug, project.name, role, project.created_at, project.open_network
    )


def member(member: Member) -> api.MemberView:
    return api.MemberView(member.user_id, member.email, member.name, member.role, member.kind)


def service_account(account: User, role: str) -> api.ServiceAccountView:
    return api.ServiceAccountView(
        account.id,
        account.project_id or "",
        account.name,
        account.email,
        role,
        account.created_at,
        account.disabled_at,
    )


def token(token: Token, current: str | None = None) -> api.TokenView:
    return api.TokenView(
        token.id,
        token.name,
        list(token.scopes),
        token.created_at,
        token.expires_at,
        token.last_used_at,
        token.kind,
        token.source,
        token.id == current,
    )


def key(key: SshKey) -> api.KeyView:
    return api.KeyView(key.id, key.name, key.type, f"{key.type} {key.blob}", key.fingerprint, key.created_at)


def machine_key(key: SshKey, owner: User) -> api.MachineKeyView:
    return api.MachineKeyView(key.id, key.name, key.type, key.fingerprint, owner.id, owner.email)


def session(login: Login, user: str | None) -> api.SessionView:
    return api.SessionView(
        login.session,
        login.user_id,
        user,
        login.fingerprint,
        login.source,
        login.opened_at,
        login.closed_at,
        login.close_reason,
    )


def break_glass(entry: BreakGlass, org: str, user: str, now: datetime) -> api.BreakGlassView:
    return api.BreakGlassView(
        entry.id,
        entry.org_id,
        org,
        entry.user_id,
        user,
        entry.reason,
        entry.created_at,
        entry.expires_at,
        entry.ended_at,
        entry.ended_by,
        entry.is_open(now),
    )


def invitation(found: Invitation, org: str, project: str | None) -> api.InvitationView:
    return api.InvitationView(
        found.id,
        found.org_id,
        org,
        found.project_id,
        project,
        found.email,
        found.role,
        found.created_by,
        found.created_at,
        found.expires_at,
    )


def offer(offer: Offer) -> api.OfferView:
    return api.OfferView(
        offer.id,
        offer.slug,
        offer.name,
        offer.gpu_model,
        offer.gpu_count,
        offer.cpus,
        offer.memory_mib,
        offer.isolation,
        list(offer.realisations),
        offer.price_micros_per_hour,
    )


def drain(drain: Drain | None) -> api.DrainView | None:
    return None if drain is None else api.DrainView(drain.reason, drain.created_at, drain.deadline)


def scrub(last: LastScrub | None, gpus: Sequence[str]) -> api.ScrubView | None:
    """What was said of these GPUs; a machine may have had others too."""
    if last is None:
        return None
    said = [api.GpuScrubView(each["gpu"], each["clean"], each["evidence"]) for each in last.evidence]
    mine = [each for each in said if each.gpu in gpus]
    clean = {each.gpu for each in mine if each.clean}.issuperset(gpus)
    return api.ScrubView(last.at, clean, last.holder_id if is_id(last.holder_id, "al") else None, mine)


def slot(slot: Slot, held: Hold | None, drained: Drain | None, scrubbed: LastScrub | None) -> api.SlotView:
    return api.SlotView(
        slot.id,
        slot.name,
        slot.gpu_model,
        list(slot.gpus),
        slot.cpus,
        slot.memory_mib,
        slot.state,
        slot.reason,
        held.holder_id if held and is_id(held.holder_id, "al") else None,
        list(SLOT.allowed(slot.state)),
        slot.numa,
        drain(drained),
        slot.link_group,
        slot.card,
        held is not None and held.state == "scrubbing",
        scrub(scrubbed, slot.gpus),
    )


def node(
    node: Node, slots: list[Slot], holders: dict[str, Hold], drains: list[Drain], scrubs: dict[str, LastScrub]
) -> api.NodeView:
    inventory = node.inventory or {}
    drained = {item.target_id: item for item in drains}
    return api.NodeView(
        node.id,
        node.name,
        node.state,
        node.org_id,
        bool(inventory.get("ready", False)),
        str(inventory.get("reason", "")),
        str(inventory.get("address", "")),
        node.agent_version,
        len(inventory.get("gpus", [])),
        node.last_seen_at,
        node.created_at,
        [slot(item, holders.get(item.id), drained.get(item.id), scrubs.get(item.id)) for item in slots],
        drain(drained.get(node.id)),
    )


def reasons(reasons: tuple[Reason, ...]) -> list[api.ReasonView]:
    return [api.ReasonView(r.code, r.message, r.count, list(r.nodes)) for r in reasons]


def plan(plan: Plan) -> api.PlanView:
    seats = [
        api.SeatView(seat.node_name, seat.realisation, seat.gpus, seat.link_groups, seat.numa_domains)
        for seat in plan.seats
        if seat.node_name
    ]
    return api.PlanView(
        plan.fits,
        [seat.realisation for seat in plan.seats],
        reasons(plan.reasons),
        plan.earliest,
        seats,
        plan.runtime,
    )


def allocation(item: Allocation, around: Surroundings) -> api.AllocationView:
    endpoint = None
    if around.address and item.seat is not None and item.state not in ("released", "failed"):
        endpoint = api.Endpoint(around.address, ssh_port(item.seat), LOGIN_USER)
    lease = lease_terms.of(item, around.lease, around.policy)
    return api.AllocationView(
        item.id,
        item.org_id,
        item.project_id,
        item.name,
        item.state,
        around.offer,
        item.owner_id,
        item.realisation,
        endpoint,
        item.host_key,
        _failure(item.failure_code, item.failure_message),
        list(item.allowed_actions if lease is not None else _unleased(item.allowed_actions)),
        item.created_at,
        item.active_at,
        item.released_at,
        _lease(*lease) if lease else None,
        item.preemptible,
        *(
            at if item.state not in ("releasing", "released") else None
            for at in (around.preempted_at, around.drained_at)
        ),
    )


def shown(machine: Shown) -> Any:
    """The same as it is sent: written once, for as long as nothing about it changes."""
    if machine.written is None:
        machine.written = msgspec.Raw(msgspec.json.encode(allocation(machine.item, machine.around)))
    return machine.written


@cache
def _unleased(actions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(action for action in actions if action != "extend")


def _lease(lease: Lease, end: Deadline | None) -> api.LeaseView:
    released_at = lease.stage_at + GRACE if lease.stage == STOPPED and lease.stage_at else None
    return api.LeaseView(
        lease.max_seconds,
        lease.idle_seconds,
        end.at if end else None,
        end.reason if end else None,
        released_at,
    )


def operation(item: Operation) -> api.OperationView:
    return api.OperationView(
        item.id,
        item.kind,
        item.state,
        item.org_id,
        item.project_id,
        item.allocation_id,
        [_phase(phase) for phase in item.phases],
        _failure(item.failure_code or ("superseded" if item.failure_message else None), item.failure_message),
        item.created_by,
        item.created_at,
        item.finished_at,
        item.correlation_id,
    )


def event(item: Event) -> api.EventView:
    return api.EventView(
        item.seq,
        item.type,
        item.at,
        item.org_id,
        item.project_id,
        item.object_kind,
        item.object_id,
        item.actor,
        item.data,
        item.correlation_id,
        item.app_instance_id,
        item.operating_mode,
        item.control_plane_scope,
        item.runtime_backend,
        item.tenant_boundary_mode,
    )


def audit(item: AuditEntry) -> api.AuditView:
    return api.AuditView(
        item.seq,
        item.at,
        item.org_id,
        item.project_id,
        item.actor,
        item.action,
        item.object_kind,
        item.object_id,
        item.data,
        item.correlation_id,
        bytes(item.hash).hex(),
    )


def _failure(code: str | None, message: str | None) -> api.FailureView | None:
    return api.FailureView(code, message or "") if code else None


def _phase(phase: dict[str, Any]) -> api.PhaseView:
    return api.PhaseView(
        phase["name"],
        phase["state"],
        _time(phase["started_at"]),
        _time(phase["finished_at"]),
        _time(phase["progress_at"]),
        phase["message"],
        phase["percent"],
        phase["log"],
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
