"""Whether quotas let a group of machines in. Asked in the transaction that claims, under the quotas' locks (I12)."""

from collections.abc import Sequence
from datetime import datetime

from gpuaas.control.store import quotas
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Offer
from gpuaas.model.placement import Reason
from gpuaas.model.quota import ALLOCATIONS, GPUS, Quota, Standing, peak


def exceeded(
    tx: Tx,
    org_id: str,
    project_id: str,
    offer: Offer,
    count: int,
    held: Sequence[Quota] | None = None,
    *,
    starts_at: datetime | None = None,
    free_at: datetime | None = None,
    besides: str | None = None,
) -> list[tuple[Reason, bool]]:
    """Why not, and whether waiting is of no use. Nothing is counted where there is no quota.

    `held`: the quotas of both, if they are locked already. From `starts_at` (now) to `free_at` (nobody knows). What is
    booked ahead in that time counts, except `besides`.
    """
    more = {GPUS: offer.gpu_count * count, ALLOCATIONS: count}
    set_here = quotas.locked(tx, org_id, project_id) if held is None else held
    found = []
    for scope, owner_id in (("project", project_id), ("org", org_id)):
        limits = {quota.kind: quota.most for quota in set_here if quota.owner_id == owner_id}
        used = quotas.used(tx, scope, owner_id, set(limits)) if limits else {}
        ahead = quotas.reserved(tx, scope, owner_id, besides) if set(limits) & set(more) else []
        if set(limits) & set(more) and (ahead or starts_at is not None):
            used |= peak([*quotas.held(tx, scope, owner_id), *ahead], starts_at or tx.now, free_at)
        for kind, most in sorted(limits.items()):
            standing, wanted = Standing(scope, owner_id, kind, most, used[kind], bool(ahead)), more.get(kind, 0)
            if (wanted and standing.exceeded_by(wanted)) or (standing.kind not in more and standing.exceeded_by(0)):
                reason = Reason(f"{scope}_quota_exceeded", standing.said(wanted), 1)
                found.append((reason, standing.hopeless(wanted)))
    return found
