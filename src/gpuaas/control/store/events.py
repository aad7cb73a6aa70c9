"""Reading the feeds: events per project, the audit chain per org, facts per node."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, many
from gpuaas.control.store.transaction import Tx, audit_hash
from gpuaas.wire.node import Fact


@dataclass(frozen=True)
class Event:
    project_id: str
    seq: int
    org_id: str
    type: str
    object_kind: str
    object_id: str
    actor: str
    data: dict[str, Any]
    at: datetime
    correlation_id: str | None
    app_instance_id: str | None
    operating_mode: str | None
    control_plane_scope: str | None
    runtime_backend: str | None
    tenant_boundary_mode: str | None


@dataclass(frozen=True)
class AuditEntry:
    org_id: str
    seq: int
    project_id: str | None
    actor: str
    action: str
    object_kind: str
    object_id: str
    data: dict[str, Any]
    at: datetime
    correlation_id: str | None
    app_instance_id: str | None
    operating_mode: str | None
    control_plane_scope: str | None
    runtime_backend: str | None
    tenant_boundary_mode: str | None
    hash: bytes


def events(tx: Tx, project_id: str, after: int, limit: int, object_id: str | None = None) -> list[Event]:
    statement = select(*columns(t.events, Event)).where(t.events.c.project_id == project_id, t.events.c.seq > after)
    if object_id:
        statement = statement.where(t.events.c.object_id == object_id)
    return many(tx.conn, statement.order_by(t.events.c.seq).limit(limit), Event)


def last_seq(tx: Tx, project_id: str) -> int:
    return int(tx.conn.execute(select(t.projects.c.event_seq).where(t.projects.c.id == project_id)).scalar_one())


def last_seqs(tx: Tx, org_id: str) -> dict[str, int]:
    """Of every project of an org."""
    statement = select(t.projects.c.id, t.projects.c.event_seq).where(t.projects.c.org_id == org_id)
    return {row.id: row.event_seq for row in tx.conn.execute(statement)}


def audit(tx: Tx, org_id: str, after: int, limit: int) -> list[AuditEntry]:
    statement = select(*columns(t.audit, AuditEntry)).where(t.audit.c.org_id == org_id, t.audit.c.seq > after)
    return many(tx.conn, statement.order_by(t.audit.c.seq).limit(limit), AuditEntry)


def verify_audit(tx: Tx, org_id: str) -> tuple[int, str | None]:
    """(entries, what is wrong): walks the chain from its beginning and names the first entry that does not fit."""
    statement = select(t.orgs.c.audit_seq, t.orgs.c.audit_hash).where(t.orgs.c.id == org_id)
    digest, seq = b"", 0
    while True:
        # The head before the entries: what is written in between makes another round, not a false alarm.
        head_seq, head = tx.conn.execute(statement).one()
        entries = audit(tx, org_id, seq, 1000)
        if not entries:
            break
        for entry in entries:
            if entry.seq != seq + 1:
                return seq, f"entry {seq + 1} is missing"
            digest = audit_hash(digest, entry.__dict__)
            if digest != bytes(entry.hash):
                return seq, f"entry {entry.seq} ({entry.action} by {entry.actor}) was altered"
            seq = entry.seq
    if seq != head_seq or digest != bytes(head):
        return seq, f"the chain ends at entry {seq}, but {head_seq} were written"
    return seq, None


def record_fact(tx: Tx, node_id: str, journal: str, fact: Fact) -> bool:
    """False when it was recorded before."""
    statement = upsert(t.facts).values(
        node_id=node_id,
        journal_incarnation=journal,
        sequence=fact.sequence,
        kind=fact.kind,
        object_id=fact.object_id,
        data=fact.data,
        at=datetime.fromtimestamp(fact.at, UTC),
        received_at=tx.now,
    )
    return tx.conn.execute(statement.on_conflict_do_nothing().returning(t.facts.c.sequence)).first() is not None
