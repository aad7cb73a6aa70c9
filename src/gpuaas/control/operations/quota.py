"""Whether quotas let a group of machines in. Asked in the transaction that claims, under the quotas' locks (I12)."""

from collections.abc import Sequence
from datetime import datetime

from gpuaas.control.store import quotas
from gpuaas.control.store.transaction import Tx
from gpuaas.model.node import Offer
from gpuaas.model.placement import Plan, Reason, Seat
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
    seats: Sequence[Seat] = (),
) -> list[tuple[Reason, bool]]:
    """Why not, and whether waiting is of no use. Nothing is counted where there is no quota.

    `held`: the quotas of both, if they are locked already. From `starts_at` (now) to `free_at` (nobody knows). What is
    booked ahead in that time counts, except `besides`. `seats`: where they would be, once that is known.
    """
    more = {GPUS: offer.gpu_count * count, ALLOCATIONS: count}
    if seats:
        more[GPUS] = sum(seat.gpus for seat in seats)
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


def counts_more_there(offer: Offer, found: Plan) -> bool:
    """What is held counts. Who has a node alone holds all of its GPUs: how many that are is known with the place."""
    asked = offer.gpu_count * len(found.seats)
    return offer.isolation == "dedicated_node" and sum(seat.gpus for seat in found.seats) > asked
