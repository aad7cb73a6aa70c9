"""What machines have of the catalog. `move` is the only writer of a row's state; all under the allocation's lock."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuaas.control.store.exchange import Answer
from gpuaas.control.store.rows import made, names
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Stale
from gpuaas.model.lifecycle import ALLOCATION_RUNTIME
from gpuaas.model.runtime import AllocationRuntime, RuntimeBundle

_LENGTH = len(names(AllocationRuntime).split(", "))
_BOTH = f"""
    SELECT {names(AllocationRuntime, "r")}, {names(RuntimeBundle, "b")}
    FROM allocation_runtimes r JOIN managed_runtime_bundles b ON b.id = r.bundle_id
"""
_INSERT = f"""
    INSERT INTO allocation_runtimes ({names(AllocationRuntime)})
    VALUES ({", ".join(f"%({name})s" for name in names(AllocationRuntime).split(", "))})
"""
_MOVE = """
    UPDATE allocation_runtimes SET state = %(becomes)s, message = %(message)s, observed = %(observed)s,
        percent = %(percent)s, applied_at = %(applied_at)s, ended_at = %(ended_at)s, ended_by = %(ended_by)s
    WHERE id = %(id)s AND state = %(state)s
"""
_OBSERVED = """
    UPDATE allocation_runtimes SET observed = %(observed)s, percent = %(percent)s, message = %(message)s
    WHERE id = %(id)s AND ended_at IS NULL
"""
_RELEASED = """
    UPDATE allocation_runtimes SET state = CASE state WHEN 'applying' THEN 'superseded' ELSE 'removed' END,
        ended_at = %(now)s, ended_by = %(by)s
    WHERE allocation_id = %(id)s AND ended_at IS NULL
"""

Row = tuple[AllocationRuntime, RuntimeBundle]


def begin(
    tx: Tx,
    allocation_id: str,
    bundle: RuntimeBundle,
    action: str,
    previous: str | None,
    operation_id: str,
    replaces: str | None = None,
    any_architecture: bool = False,
) -> AllocationRuntime:
    wish = AllocationRuntime(
        id=tx.ids.new("ar"),
        allocation_id=allocation_id,
        bundle_id=bundle.id,
        slug=bundle.slug,
        version=bundle.version,
        action=action,
        previous_version=previous,
        state=ALLOCATION_RUNTIME.initial,
        observed="",
        percent=None,
        message="",
        operation_id=operation_id,
        created_by=tx.actor,
        created_at=tx.now,
        applied_at=None,
        ended_at=None,
        ended_by=None,
        replaces=replaces,
        any_architecture=any_architecture,
    )
    tx.later(_INSERT, wish.__dict__)
    return wish


def live(tx: Tx, allocation_id: str) -> list[Row]:
    """Wanted, current or beside it."""
    rows = tx.run(f"{_BOTH} WHERE r.allocation_id = %(id)s AND r.ended_at IS NULL ORDER BY r.slug, r.created_at, r.id",
                  {"id": allocation_id})  # fmt: skip
    return [_both(row) for row in rows]


def history(tx: Tx, allocation_id: str, after: tuple[datetime, str] | None, limit: int) -> list[Row]:
    """Everything that was ever wanted there, the newest first."""
    at, id = after or (None, None)
    older = "AND (r.created_at, r.id) < (%(at)s, %(last)s)" if after else ""
    statement = f"""{_BOTH} WHERE r.allocation_id = %(id)s {older}
        ORDER BY r.created_at DESC, r.id DESC LIMIT %(limit)s"""
    return [_both(row) for row in tx.run(statement, {"id": allocation_id, "at": at, "last": id, "limit": limit})]


def _both(row: Sequence[Any]) -> Row:
    return made(AllocationRuntime, tuple(row[:_LENGTH])), made(RuntimeBundle, tuple(row[_LENGTH:]))


def move(tx: Tx, row: AllocationRuntime, event: str, *, message: str = "", observed: str = "") -> AllocationRuntime:
    becomes = ALLOCATION_RUNTIME.next(row.state, event)
    if becomes is None:
        raise Stale(f"runtime {row.id} is {row.state}: {event} means nothing there")
    over = becomes in ALLOCATION_RUNTIME.ends
    moved = replace(
        row,
        state=becomes,
        message=message,
        observed=observed or row.observed,
        percent=None,
        applied_at=tx.now if becomes == "applied" else row.applied_at,
        ended_at=tx.now if over else None,
        ended_by=tx.actor if over else None,
    )

    def check(changed: Answer) -> None:
        if changed.rowcount != 1:
            raise Stale(f"runtime {row.id} moved")

    tx.later(_MOVE, {**moved.__dict__, "becomes": becomes, "state": row.state}, check)
    return moved


def set_build(tx: Tx, row: AllocationRuntime, bundle: RuntimeBundle) -> None:
    """The same version, for the architecture that the machine turned out to have."""
    statement = "UPDATE allocation_runtimes SET bundle_id = %(bundle)s WHERE id = %(id)s AND ended_at IS NULL"
    tx.later(statement, {"id": row.id, "bundle": bundle.id})


def set_observed(tx: Tx, row: AllocationRuntime, observed: str, percent: int | None, message: str) -> None:
    """What its node says of it; nothing is decided by that."""
    if (row.observed, row.percent, row.message) != (observed, percent, message):
        tx.later(_OBSERVED, {"id": row.id, "observed": observed, "percent": percent, "message": message})


def released(tx: Tx, allocation_id: str) -> None:
    """The machine goes, and all that it had of the catalog with it."""
    tx.later(_RELEASED, {"id": allocation_id, "now": tx.now, "by": tx.actor})
