"""Users: who there is, and who no longer gets in."""

from typing import Any

from gpuaas.control.app import access
from gpuaas.control.app.identity import add_user
from gpuaas.control.app.sessions import hash_password
from gpuaas.control.operations import access as machine_access
from gpuaas.control.store import allocations, identity, keys, tokens
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import conflict, invalid, not_found
from gpuaas.model.identity import SERVICE, Caller, Token, User


def create_user(tx: Tx, caller: Caller, email: str, name: str, password: str | None, platform_role: str | None) -> User:
    access.on_platform(tx, caller, "user.write")
    return add_user(tx, email, name, hash_password(password) if password else None, platform_role)


def list_users(tx: Tx, caller: Caller, after: str, limit: int) -> list[User]:
    access.on_platform(tx, caller, "user.read")
    return identity.users(tx, after, limit)


def disable(tx: Tx, caller: Caller, name: str, confirm: str, reason: str) -> User:
    """Logins, tokens, streams and SSH sessions end with the commit. Asking twice is not an error."""
    access.on_platform(tx, caller, "user.write")
    user = _found(tx, name)
    if confirm.lower() != user.email:
        raise invalid(
            f"To disable {user.email}, `confirm` must repeat the address.",
            f"Send confirm: {user.email!r}.",
            code="not_confirmed",
        )
    if user.id == caller.user_id:
        raise conflict("own_account", "You cannot disable yourself.", "Ask another platform administrator.")
    tokens.revoke_all(tx, user.id)  # waits for requests that are being worked on with one
    if identity.enabled_admins(tx) == [user.id]:
        raise conflict(
            "last_administrator", f"{user.email} is the last platform administrator.", "Make another one first."
        )
    if user.disabled_at is None:
        identity.set_disabled(tx, user.id, tx.now)
    ended = end_everything(tx, user.id)
    _record(tx, "user.disable", user, reason=reason, machines=ended)
    return _found(tx, user.id)


def end_everything(tx: Tx, user_id: str) -> list[str]:
    """What somebody who is disabled (or deleted) still holds. Answers the machines that they no longer get into."""
    tokens.revoke_all(tx, user_id)  # again: one that was made while we waited
    started = machine_access.withdraw(tx, allocations.owned(tx, user_id), keys.keys(tx, user_id))
    return [operation.allocation_id for operation in started]


def enable(tx: Tx, caller: Caller, name: str) -> User:
    """They may log in again. What ended stays ended: tokens are made, and keys put on machines, anew."""
    access.on_platform(tx, caller, "user.write")
    user = _found(tx, name)
    if user.kind == SERVICE and not identity.member_role(tx, user.project_id or "", user.id):
        raise conflict("deleted", "This service account was deleted.", "Make a new one in its project.")
    identity.set_disabled(tx, user.id, None)
    _record(tx, "user.enable", user)
    return _found(tx, user.id)


def list_tokens(tx: Tx, caller: Caller, name: str) -> list[Token]:
    access.on_platform(tx, caller, "user.read")
    return tokens.tokens(tx, _found(tx, name).id)


def end_tokens(tx: Tx, caller: Caller, name: str) -> int:
    """Every login and token of somebody; they may log in again."""
    access.on_platform(tx, caller, "user.write")
    user = _found(tx, name)
    ended = tokens.revoke_all(tx, user.id, but=caller.token_id)
    _record(tx, "user.end_tokens", user, ended=ended)
    return ended


def _found(tx: Tx, name: str) -> User:
    user = identity.user(tx, name)
    if user is None:
        raise not_found("user", name)
    return user


def _record(tx: Tx, action: str, user: User, **data: Any) -> None:
    tx.audit(action, org_id=identity.platform_org_id(tx), kind="user", id=user.id, email=user.email, **data)
