"""The usage ledger: intervals in which something costs, written with the state change that starts or ends them."""

from datetime import datetime

from sqlalchemy import func, insert, update

from gpuaas.control.store import tables as t
from gpuaas.control.store.transaction import Tx


def open_(tx: Tx, org_id: str, project_id: str, resource_id: str, component: str, shape: str) -> None:
    tx.conn.execute(
        insert(t.usage).values(
            id=tx.ids.new("ug"),
            org_id=org_id,
            project_id=project_id,
            resource_id=resource_id,
            component=component,
            shape=shape,
            started_at=tx.now,
            correlation_id=tx.correlation_id,
        )
    )


def close(tx: Tx, resource_id: str, component: str, at: datetime) -> None:
    """`at` may lie before now (a node that fell silent), never before the interval began."""
    tx.conn.execute(
        update(t.usage)
        .where(t.usage.c.resource_id == resource_id, t.usage.c.component == component, t.usage.c.ended_at.is_(None))
        .values(ended_at=func.greatest(t.usage.c.started_at, at))
    )
