"""Deliveries: claimed per webhook, so that each has one sender at a time and first attempts keep their order.

A claim is a lease. A sender that dies stops renewing it, and any replica goes on: at least once, never lost.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update

from gpuaas.control.store import tables as t
from gpuaas.control.store.events import Event
from gpuaas.control.store.rows import columns, many, one
from gpuaas.control.store.transaction import Tx
from gpuaas.control.store.webhooks import TOPIC, secrets
from gpuaas.model.lifecycle import DELIVERY
from gpuaas.model.webhook import Delivery, Outcome, pause

LEASE = timedelta(seconds=20)  # longer than one attempt can take
KEPT = timedelta(days=14)


@dataclass(frozen=True)
class Claim:
    token: str
    webhook_id: str
    org_id: str


@dataclass(frozen=True)
class Attempt:
    """What is sent, and where to. `number` counts from 1."""

    delivery_id: str
    number: int
    url: str
    secrets: tuple[str, ...]
    event: Event | None  # None: it is no longer kept


def claim(tx: Tx, limit: int, per_org: int, full: Collection[str] = ()) -> list[Claim]:
    """Webhooks with something to send, whose turn was longest ago first; none of the orgs that are `full`."""
    w = t.webhooks.c
    free = and_(w.disabled_at.is_(None), or_(w.claimed_until.is_(None), w.claimed_until < tx.now))
    rank = func.row_number().over(partition_by=w.org_id, order_by=(w.turn_at.asc().nulls_first(), w.id))
    waiting = select(t.deliveries.c.id).where(_due(tx, w.id)).exists()
    ranked = select(w.id, rank.label("rank")).where(free, waiting, w.org_id.not_in(list(full))).subquery()
    chosen = select(ranked.c.id).where(ranked.c.rank <= per_org)
    statement = (
        select(w.id, w.org_id)
        .where(w.id.in_(chosen), free)
        .order_by(w.turn_at.asc().nulls_first(), w.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    claims = [Claim(tx.ids.new("wc"), row.id, row.org_id) for row in tx.conn.execute(statement)]
    for one_ in claims:
        values = {"claim": one_.token, "claimed_until": tx.now + LEASE, "turn_at": tx.now}
        tx.conn.execute(update(t.webhooks).where(w.id == one_.webhook_id).values(**values))
    return claims


def begin(tx: Tx, claim: Claim) -> Attempt | None:
    """The next attempt, counted before it is made. None: nothing is due, or the claim is somebody else's by now."""
    w = t.webhooks.c
    renewed = (
        update(t.webhooks)
        .where(w.id == claim.webhook_id, w.claim == claim.token, w.disabled_at.is_(None))
        .values(claimed_until=tx.now + LEASE)
        .returning(w.url)
    )
    url = tx.conn.execute(renewed).scalar_one_or_none()
    if url is None:
        return None
    mine = select(*columns(t.deliveries, Delivery)).where(_due(tx, claim.webhook_id))
    delivery = one(tx.conn, mine.order_by(t.deliveries.c.number).limit(1), Delivery)
    if delivery is None:
        return None
    number = delivery.attempts + 1
    # Should the sender die now, it is due again when the lease is over.
    counted = {"attempts": number, "attempted_at": tx.now, "next_at": tx.now + LEASE}
    tx.conn.execute(update(t.deliveries).where(t.deliveries.c.id == delivery.id).values(**counted))
    found = select(*columns(t.events, Event)).where(
        t.events.c.project_id == delivery.project_id, t.events.c.seq == delivery.seq
    )
    return Attempt(delivery.id, number, url, secrets(tx, claim.webhook_id), one(tx.conn, found, Event))


def record(tx: Tx, attempt: Attempt, outcome: Outcome) -> str | None:
    """The state that it leads to; None when a later attempt was begun meanwhile."""
    wait = pause(attempt.number, tx.ids.token_bytes(1)[0] / 255)
    event = "answered" if outcome.delivered else "failed" if wait is not None else "exhausted"
    becomes = DELIVERY.next("pending", event)
    assert becomes is not None
    ended = becomes != "pending"
    statement = (
        update(t.deliveries)
        .where(
            t.deliveries.c.id == attempt.delivery_id,
            t.deliveries.c.attempts == attempt.number,
            t.deliveries.c.state == "pending",
        )
        .values(
            state=becomes,
            next_at=None if ended or wait is None else tx.now + wait,
            finished_at=tx.now if ended else None,
            status=outcome.status,
            error=outcome.error,
            duration_ms=outcome.duration_ms,
        )
    )
    return becomes if tx.conn.execute(statement).rowcount == 1 else None


def go_on(tx: Tx, claim: Claim, attempt: Attempt, outcome: Outcome, *, more: bool) -> tuple[str | None, Attempt | None]:
    """What became of an attempt, and with `more` the next one: one transaction for each delivery, not two."""
    return record(tx, attempt, outcome), begin(tx, claim) if more else None


def let_go(tx: Tx, claim: Claim) -> None:
    held = and_(t.webhooks.c.id == claim.webhook_id, t.webhooks.c.claim == claim.token)
    tx.conn.execute(update(t.webhooks).where(held).values(claim=None, claimed_until=None))


def replay(tx: Tx, webhook_id: str, events: list[tuple[str, int, str]]) -> int:
    """Each (project, seq, type) is sent anew, after what waits already."""
    rows: list[dict[str, Any]] = [
        {"id": tx.ids.new("wd"), "webhook_id": webhook_id, "project_id": project_id, "seq": seq, "type": type,
         "state": "pending", "created_at": tx.now, "replay": True}
        for project_id, seq, type in events
    ]  # fmt: skip
    if rows:
        tx.conn.execute(insert(t.deliveries), rows)
        tx.wake(TOPIC)
    return len(rows)


def delivery(tx: Tx, webhook_id: str, id: str) -> Delivery | None:
    mine = and_(t.deliveries.c.webhook_id == webhook_id, t.deliveries.c.id == id)
    return one(tx.conn, select(*columns(t.deliveries, Delivery)).where(mine), Delivery)


def deliveries(tx: Tx, webhook_id: str, state: str | None, before: int | None, limit: int) -> list[Delivery]:
    """Newest first."""
    statement = select(*columns(t.deliveries, Delivery)).where(t.deliveries.c.webhook_id == webhook_id)
    if state is not None:
        statement = statement.where(t.deliveries.c.state == state)
    if before is not None:
        statement = statement.where(t.deliveries.c.number < before)
    return many(tx.conn, statement.order_by(t.deliveries.c.number.desc()).limit(limit), Delivery)


def forget_old(tx: Tx, at_once: int) -> int:
    old = select(t.deliveries.c.id).where(t.deliveries.c.finished_at < tx.now - KEPT).limit(at_once)
    return tx.conn.execute(delete(t.deliveries).where(t.deliveries.c.id.in_(old))).rowcount


def pending(tx: Tx) -> int:
    statement = select(func.count()).select_from(t.deliveries).where(t.deliveries.c.state == "pending")
    return int(tx.conn.execute(statement).scalar_one())


def _due(tx: Tx, webhook_id: Any) -> ColumnElement[bool]:
    d = t.deliveries.c
    return and_(d.webhook_id == webhook_id, d.state == "pending", or_(d.next_at.is_(None), d.next_at <= tx.now))
