"""Webhooks: what they are, their secrets, and how far each has come in the feeds that it reads."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.events import events
from gpuaas.control.store.rows import columns, many, one, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.model.webhook import Webhook, wants

MOST_PENDING = 1000  # of one webhook, give or take a batch; what comes on top waits in the feed
AT_ONCE = 200
TOPIC = "webhooks"


def insert_webhook(
    tx: Tx, org_id: str, project_id: str | None, name: str, url: str, types: tuple[str, ...]
) -> tuple[Webhook, str]:
    """The webhook and its secret. It is told of what happens from now on."""
    secret = new_secret(tx)
    made = Webhook(tx.ids.new("wh"), org_id, project_id, name, url, types, tx.actor, tx.now, None, None)
    with unique():
        kept = tx.seal.close(secret, made.id)
        tx.conn.execute(insert(t.webhooks).values(**{**made.__dict__, "types": list(types)}, secret=kept))
    mine = t.projects.c.id == project_id if project_id else t.projects.c.org_id == org_id
    # Of a project that is made later there is no cursor yet: it is told of everything.
    for row in tx.conn.execute(select(t.projects.c.id, t.projects.c.event_seq).where(mine)).all():
        values = {"webhook_id": made.id, "project_id": row.id, "seq": row.event_seq}
        tx.conn.execute(insert(t.webhook_cursors).values(values))
    return made, secret


def new_secret(tx: Tx) -> str:
    return "whs_" + tx.ids.secret()


def webhooks(tx: Tx, org_id: str, project_id: str | None) -> list[Webhook]:
    statement = select(*columns(t.webhooks, Webhook)).where(_of(org_id, project_id))
    return many(tx.conn, statement.order_by(t.webhooks.c.name), Webhook)


def webhook(tx: Tx, org_id: str, project_id: str | None, name: str, *, lock: bool = False) -> Webhook | None:
    """By id or name."""
    named = or_(t.webhooks.c.id == name, t.webhooks.c.name == name)
    statement = select(*columns(t.webhooks, Webhook)).where(_of(org_id, project_id), named)
    return one(tx.conn, statement.with_for_update(key_share=True) if lock else statement, Webhook)


def change(tx: Tx, webhook_id: str, **values: Any) -> Webhook:
    statement = update(t.webhooks).where(t.webhooks.c.id == webhook_id).values(**values)
    tx.conn.execute(statement)
    tx.wake(TOPIC)
    found = one(tx.conn, select(*columns(t.webhooks, Webhook)).where(t.webhooks.c.id == webhook_id), Webhook)
    assert found is not None
    return found


def rotate(tx: Tx, webhook_id: str, until: datetime) -> tuple[Webhook, str]:
    """A new secret; what is sent before `until` carries a signature with the old one too."""
    secret = new_secret(tx)
    kept = tx.seal.close(secret, webhook_id)
    return change(tx, webhook_id, previous_secret=t.webhooks.c.secret, previous_until=until, secret=kept), secret


def remove(tx: Tx, webhook_id: str) -> None:
    """With everything that was on its way."""
    tx.conn.execute(delete(t.webhooks).where(t.webhooks.c.id == webhook_id))


def secrets(tx: Tx, webhook_id: str) -> tuple[str, ...]:
    """What a delivery is signed with now, the newest first. None, if one of them cannot be read: see kit/seal.py."""
    c = t.webhooks.c
    row = tx.conn.execute(select(c.secret, c.previous_secret, c.previous_until).where(c.id == webhook_id)).one()
    both = row.previous_secret is not None and row.previous_until > tx.now
    opened = [tx.seal.open(kept, webhook_id) for kept in ((row.secret, row.previous_secret) if both else (row.secret,))]
    found = tuple(secret for secret in opened if secret is not None)
    return found if len(found) == len(opened) else ()


def unsealed(tx: Tx) -> int:
    """How many can be read by whoever reads the database."""
    statement = select(func.count()).select_from(t.webhooks).where(t.webhooks.c.secret.startswith("whs_"))
    return tx.conn.execute(statement).scalar_one()


def are_there(tx: Tx) -> bool:
    """Asked whenever anything happens, and mostly answered with no."""
    return bool(tx.run("SELECT FROM webhooks LIMIT 1").rowcount)


def behind(tx: Tx, limit: int) -> list[tuple[str, str]]:
    """(webhook, project) where something happened that is not on its way yet, and there is room for more of it."""
    seen = func.coalesce(t.webhook_cursors.c.seq, 0)
    pending = (
        select(func.count())
        .select_from(t.deliveries)
        .where(t.deliveries.c.webhook_id == t.webhooks.c.id, t.deliveries.c.state == "pending")
        .scalar_subquery()
    )
    statement = (
        select(t.webhooks.c.id, t.projects.c.id.label("project_id"))
        .join(t.projects, _reads())
        .outerjoin(t.webhook_cursors, _cursor())
        .where(t.webhooks.c.disabled_at.is_(None), t.projects.c.event_seq > seen, pending < MOST_PENDING)
    )
    return [(row.id, row.project_id) for row in tx.conn.execute(statement.limit(limit))]


def spread(tx: Tx, webhook_id: str, project_id: str) -> int:
    """Puts the next events of a feed on their way; how many were looked at. 0 as well when somebody else does it."""
    found = one(tx.conn, select(*columns(t.webhooks, Webhook)).where(t.webhooks.c.id == webhook_id), Webhook)
    if found is None:
        return 0
    cursor = {"webhook_id": webhook_id, "project_id": project_id}
    tx.conn.execute(upsert(t.webhook_cursors).values(**cursor, seq=0).on_conflict_do_nothing())
    here = and_(t.webhook_cursors.c.webhook_id == webhook_id, t.webhook_cursors.c.project_id == project_id)
    held = select(t.webhook_cursors.c.seq).where(here).with_for_update(skip_locked=True)
    seq = tx.conn.execute(held).scalar_one_or_none()
    if seq is None:
        return 0
    batch = events(tx, project_id, seq, AT_ONCE)
    new = {**cursor, "state": "pending", "created_at": tx.now}
    rows = [
        {**new, "id": tx.ids.new("wd"), "seq": event.seq, "type": event.type}
        for event in batch
        if wants(found.types, event.type)
    ]
    if rows:
        tx.conn.execute(insert(t.deliveries), rows)
    if batch:
        tx.conn.execute(update(t.webhook_cursors).where(here).values(seq=batch[-1].seq))
    return len(batch)


def lag(tx: Tx) -> int:
    """Events that are in a feed, but not on their way to a webhook that reads it."""
    behind = t.projects.c.event_seq - func.coalesce(t.webhook_cursors.c.seq, 0)
    statement = (
        select(func.coalesce(func.sum(func.greatest(behind, 0)), 0))
        .select_from(t.webhooks)
        .join(t.projects, _reads())
        .outerjoin(t.webhook_cursors, _cursor())
        .where(t.webhooks.c.disabled_at.is_(None))
    )
    return int(tx.conn.execute(statement).scalar_one())


def _of(org_id: str, project_id: str | None) -> ColumnElement[bool]:
    return and_(t.webhooks.c.org_id == org_id, t.webhooks.c.project_id.is_not_distinct_from(project_id))


def _reads() -> ColumnElement[bool]:
    own = t.projects.c.id == t.webhooks.c.project_id
    return or_(own, and_(t.webhooks.c.project_id.is_(None), t.projects.c.org_id == t.webhooks.c.org_id))


def _cursor() -> ColumnElement[bool]:
    return and_(t.webhook_cursors.c.webhook_id == t.webhooks.c.id, t.webhook_cursors.c.project_id == t.projects.c.id)
