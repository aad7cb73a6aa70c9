"""Service accounts: rows of `users` that belong to a project."""

from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import SERVICE, User


def insert_account(tx: Tx, project_id: str, email: str, name: str) -> User | None:
    """None when the project has one of that name."""
    row: dict[str, Any] = {
        "id": tx.ids.new("sa"),
        "email": email,
        "name": name,
        "created_at": tx.now,
        "kind": SERVICE,
        "project_id": project_id,
    }
    made = tx.conn.execute(upsert(t.users).values(**row).on_conflict_do_nothing().returning(t.users.c.id)).first()
    return User(**row, platform_role=None, disabled_at=None) if made else None


def accounts(tx: Tx, project_id: str) -> list[tuple[User, str]]:
    """Those that were not deleted, each with its role."""
    statement = (
        select(*columns(t.users, User), t.memberships.c.role)
        .join(t.memberships, t.memberships.c.user_id == t.users.c.id)
        .where(t.users.c.project_id == project_id, t.memberships.c.project_id == project_id)
        .order_by(t.users.c.name)
    )
    return [(User(*row[:-1]), row[-1]) for row in tx.conn.execute(statement)]


def forget(tx: Tx, user_id: str, email: str) -> None:
    """Its row stays, for what it did; its name and its keys are free again."""
    tx.conn.execute(update(t.users).where(t.users.c.id == user_id).values(email=email))
    tx.conn.execute(delete(t.ssh_keys).where(t.ssh_keys.c.user_id == user_id))
