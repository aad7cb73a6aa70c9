"""What a launch has to know of its project and its owner, and holds until it is committed. In one round trip."""

from dataclasses import dataclass

from gpuaas.control.store import identity, keys, leases, offers, quotas
from gpuaas.control.store.rows import made
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Project, SshKey
from gpuaas.model.lease import LeasePolicy
from gpuaas.model.node import Offer
from gpuaas.model.quota import Quota


@dataclass(frozen=True)
class Admission:
    offer: Offer | None
    project: Project | None  # if they are in it, and until we commit: who takes them out waits, and sees what was done
    role: str
    keys: list[SshKey]  # nobody deletes one before we have committed
    quotas: list[Quota]  # whoever wants more of the same waits
    policy: LeasePolicy | None


_QUOTAS = quotas.LOCKED.format(owners=f"{identity.ORG}, {identity.PROJECT}")


def admission(tx: Tx, project_id: str, user_id: str, offer: str) -> Admission:
    """In the order in which locks are taken everywhere. Of a project that they are not in, nothing is."""
    found, projects, own, limits, policies = tx.together(
        offers.asked(offer),
        (identity.ADMITTED, {"project_id": project_id, "user_id": user_id}),
        (keys.LOCKED, {"user_id": user_id}),
        (_QUOTAS, {}),
        (leases.POLICY, {"project_id": project_id}),
    )
    *project, role, _, _ = projects[0] if projects else (None, "", "", "")
    return Admission(
        offer=made(Offer, found[0]) if found else None,
        project=made(Project, tuple(project)) if projects else None,
        role=role,
        keys=[made(SshKey, row) for row in own],
        quotas=[made(Quota, row) for row in limits],
        policy=made(LeasePolicy, policies[0]) if policies else None,
    )
