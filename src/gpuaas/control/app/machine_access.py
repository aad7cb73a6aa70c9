"""Who gets into a machine: the owner's keys on it, and the sessions that they opened."""

from collections.abc import Sequence
from datetime import datetime

from gpuaas.control.app.allocations import audited, chosen_keys, find, not_now, show
from gpuaas.control.operations import access as changing
from gpuaas.control.operations import bodies
from gpuaas.control.store import allocations, identity, keys, logins
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict
from gpuaas.model.allocation import Allocation
from gpuaas.model.identity import Caller, SshKey, User
from gpuaas.model.login import Login
from gpuaas.model.operation import Operation


def list_keys(tx: Tx, caller: Caller, name: str) -> tuple[list[SshKey], User]:
    """The keys that get in, and whose they are."""
    allocation = show(tx, caller, name)
    owner = identity.user(tx, allocation.owner_id)
    assert owner is not None
    return bodies.keys_of(tx, allocation) if "access" in allocation.allowed_actions else [], owner


def set_keys(tx: Tx, caller: Caller, name: str, wanted: Sequence[str]) -> tuple[Allocation, Operation]:
    """Exactly these keys of the owner get in from now on; none is allowed too."""
    seen = find(tx, caller, "allocation.access", name, lock=False)
    chosen = chosen_keys(keys.keys(tx, seen.owner_id, lock=True), wanted)
    allocation = allocations.by_id(tx, seen.id, lock=True)
    assert allocation is not None
    if "access" not in allocation.allowed_actions:
        raise not_now(allocation, "access")
    project = identity.project(tx, allocation.project_id)
    assert project is not None
    # Asked with the machine locked: whoever takes the owner out of the project locks it too.
    if chosen and not identity.belongs(tx, project, allocation.owner_id):
        raise _owner_left()
    operation = changing.start(tx, allocation, [key.id for key in chosen])
    fingerprints = [key.fingerprint for key in chosen]
    return audited(tx, allocation, "allocation.access", operation, keys=fingerprints)


def list_sessions(
    tx: Tx, caller: Caller, name: str, after: tuple[datetime, str] | None, limit: int
) -> list[tuple[Login, str | None]]:
    """Who is and was logged in, newest first, each with the person's address."""
    return logins.page(tx, show(tx, caller, name).id, after, limit)


def _owner_left() -> Problem:
    return conflict(
        "owner_left",
        "The owner of this machine is no longer in the project, so their keys do not get in.",
        "Add the owner to the project again, or release the machine.",
    )
