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
    member: bool  # until we commit: who takes them out waits, and then sees what was done
    keys: list[SshKey]  # nobody deletes one before we have committed
    quotas: list[Quota]  # whoever wants more of the same waits
    policy: LeasePolicy | None


def admission(tx: Tx, project: Project, user_id: str, offer: str) -> Admission:
    """In the order in which locks are taken everywhere."""
    found, roles, own, limits, policies = tx.together(
        offers.asked(offer),
        (identity.BELONGS, {"project_id": project.id, "org_id": project.org_id, "user_id": user_id}),
        (keys.LOCKED, {"user_id": user_id}),
        (quotas.LOCKED, {"owners": [project.org_id, project.id]}),
        (leases.POLICY, {"project_id": project.id}),
    )
    return Admission(
        offer=made(Offer, found[0]) if found else None,
        member=bool(roles),
        keys=[made(SshKey, row) for row in own],
        quotas=[made(Quota, row) for row in limits],
        policy=made(LeasePolicy, policies[0]) if policies else None,
    )
