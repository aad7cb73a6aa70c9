"""Who belongs to an organisation, and who no longer does."""

from gpuaas.control.app import access
from gpuaas.control.operations import access as machine_access
from gpuaas.control.store import allocations, identity, invitations, keys
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, not_found
from gpuaas.model.identity import SERVICE, Caller, Member, Org, User


def list_members(tx: Tx, caller: Caller, org_name: str) -> list[Member]:
    org = access.in_org(tx, caller, "org_member.read", org_name)
    return identity.org_members(tx, org.id)


def remove(tx: Tx, caller: Caller, org_name: str, user_name: str) -> None:
    """Out of all its projects too. What they have open there, SSH sessions included, ends with the commit."""
    org = access.in_org(tx, caller, "org_member.write", org_name)
    user = identity.user(tx, user_name)
    if user is None or user.kind == SERVICE:
        raise not_found("member", user_name)
    if identity.org_admins(tx, org.id) == [user.id]:  # locked: of two who take each other out, one stays
        raise conflict(
            "last_administrator",
            f"{user.email} is the last administrator of {org.slug}.",
            "Invite another one first: `gpuaas invitation create ADDRESS --org " + org.slug + " --role tenant_admin`.",
        )
    left = identity.leave_org(tx, org.id, user.id)
    if left is None:
        raise not_found("member", user_name)
    _end(tx, org, user, left)


def _end(tx: Tx, org: Org, user: User, projects: list[str]) -> None:
    tx.wake(f"user:{user.id}")  # whoever follows something there is cut off now
    machines = [machine for machine in allocations.owned(tx, user.id) if machine.org_id == org.id]
    closed = machine_access.withdraw(tx, machines, keys.keys(tx, user.id))
    # One that is still open would let them in again. Those that they have sent are void without their sender's role.
    invitations.revoke_address(tx, org.id, user.email)
    for project_id in projects:
        tx.emit("member.remove", org_id=org.id, project_id=project_id, kind="user", id=user.id, by="organisation")
    tx.audit(
        "org_member.remove",
        org_id=org.id,
        kind="user",
        id=user.id,
        email=user.email,
        projects=projects,
        machines=[operation.allocation_id for operation in closed],
    )
