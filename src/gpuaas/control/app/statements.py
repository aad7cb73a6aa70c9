"""Statements: a month of a project. Closed by a sweep when nothing of it can change; derived again for every reader."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuaas.control.app import access
from gpuaas.control.app.usage import derived
from gpuaas.control.store import identity, statements, usage
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller, Project
from gpuaas.model.period import after, month_of
from gpuaas.model.statement import Statement, digest
from gpuaas.model.usage import Line, total

SETTLE = timedelta(hours=1)  # longer than any transaction that was under way when the month ended


@dataclass(frozen=True)
class Shown:
    """`closed` is what was stored, `lines` what follows from the ledger now; `intact`: they say the same."""

    project_id: str
    starts_at: datetime
    ends_at: datetime
    lines: list[Line]
    closed: Statement | None
    intact: bool | None


def list_statements(tx: Tx, caller: Caller, name: str) -> list[Statement]:
    project = access.in_project(tx, caller, "statement.read", name)
    return statements.statements(tx, [project.id])


def show(tx: Tx, caller: Caller, name: str, month: datetime) -> Shown:
    project = access.in_project(tx, caller, "statement.read", name)
    return _shown(tx, [project.id], month)[0]


def show_org(tx: Tx, caller: Caller, name: str, month: datetime) -> tuple[str, list[Shown]]:
    """Its id, and every project of it."""
    org = access.in_org(tx, caller, "org_usage.read", name)
    return org.id, _shown(tx, identity.project_ids(tx, org.id), month)


def close_due(tx: Tx, project: Project) -> int:
    """The months of a project that are over, in their order, as far as they are settled. How many."""
    begin = statements.last_end(tx, project.id) or month_of(usage.first(tx, project.id) or tx.now)[0]
    closed = 0
    while (end := after(begin)) + SETTLE <= tx.now and usage.is_settled(tx, project.id, end):
        found = derived(tx, [project.id], begin, end)
        amount, hash = total(found).amount_micros, digest(project.id, begin, end, found)
        made = Statement(tx.ids.new("sm"), project.org_id, project.id, begin, end, len(found), amount, hash, tx.now)
        if not statements.insert_statement(tx, made):
            break
        about = {"org_id": project.org_id, "project_id": project.id, "kind": "statement", "id": made.id}
        tx.audit("statement.close", **about, month=f"{begin:%Y-%m}", amount_micros=amount, hash=hash.hex())
        tx.emit("statement.closed", **about, month=f"{begin:%Y-%m}", amount_micros=amount)
        begin, closed = end, closed + 1
    return closed


def _shown(tx: Tx, project_ids: list[str], month: datetime) -> list[Shown]:
    begin, end = month_of(month)
    stored = {item.project_id: item for item in statements.statements(tx, project_ids) if item.starts_at == begin}
    shown = []
    for id in project_ids:
        found, closed = derived(tx, [id], begin, end), stored.get(id)
        intact = None if closed is None else bytes(closed.hash) == digest(id, begin, end, found)
        shown.append(Shown(id, begin, end, found, closed, intact))
    return shown
