"""Passwords and API tokens."""

from datetime import timedelta

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from gpuaas.control.app import access
from gpuaas.control.store import identity, tokens
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, invalid, not_found
from gpuaas.model.identity import PASSWORD, SERVICE, Caller, Token, User
from gpuaas.model.permission import is_scope, scope_allows

LOGIN_LIFETIME = timedelta(hours=12)
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
# Verified when there is no such user, so that the answer takes as long. Made once, since making it is as slow.
_NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$dsxOFO0XI1NkzHJoBL85HQ$hzLN/rSfC6Pn/aF6J6Tc3em8VQ5zjCIfcLSz3iyuiJA"


def hash_password(password: str) -> str:
    return _hasher.hash(password)


def check_password(found: tuple[User, str | None] | None, password: str) -> User:
    """Slow on purpose: call it outside of any transaction."""
    stored = found[1] if found and found[1] else _NOBODY
    if not _fits(stored, password) or found is None or found[1] is None or found[0].disabled_at is not None:
        raise Problem(
            "wrong_credentials", 401, "The address or the password is wrong.", "Check both, or ask an administrator."
        )
    return found[0]


def _fits(stored: str, password: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


def password_of(tx: Tx, email: str) -> tuple[User, str | None] | None:
    tx.authorized.add("login")
    return identity.password_hash(tx, email)


def login(tx: Tx, user: User, source: str, kind: str = PASSWORD) -> tuple[Token, str]:
    tx.authorized.add("login")
    until = tx.now + LOGIN_LIFETIME
    token, secret = tokens.insert_token(tx, user.id, "login", ("*",), until, kind=kind, source=source)
    tx.actor = user.id
    org_id = identity.platform_org_id(tx)
    tx.audit("session.login", org_id=org_id, kind="user", id=user.id, token=token.id, by=kind, source=source)
    return token, secret


def authenticate(tx: Tx, secret: str) -> Caller:
    caller = tokens.caller(tx, secret)
    if caller is None:
        raise Problem(
            "unauthenticated",
            401,
            "The token is unknown, expired or revoked.",
            "Log in again with `gpuaas login`, or use a valid API token.",
        )
    return caller


def create_token(
    tx: Tx, caller: Caller, name: str, scopes: list[str], lifetime_seconds: int, source: str = ""
) -> tuple[Token, str]:
    """A token is never wider than the one it is made with."""
    access.signed_in(tx, caller, "token.write")
    if caller.kind == SERVICE:  # or a leaked one would renew itself for ever
        raise Problem(
            "service_account",
            403,
            "A service account makes no tokens for itself.",
            "An admin of its project does: `gpuaas service-account token create`.",
        )
    check_scopes(caller, scopes)
    token, secret = tokens.insert_token(
        tx, caller.user_id, name, tuple(scopes), tx.now + timedelta(seconds=lifetime_seconds), source=source
    )
    org_id = identity.platform_org_id(tx)
    tx.audit("token.create", org_id=org_id, kind="token", id=token.id, name=name, scopes=scopes)
    return token, secret


def check_scopes(caller: Caller, scopes: list[str]) -> None:
    for scope in scopes:
        if not is_scope(scope):
            raise invalid(f"There is no scope {scope!r}.", "Use '*', 'read', 'noun.*' or an action's name.")
        if "*" not in caller.scopes and not _narrower(scope, caller.scopes):
            raise Problem("token_scope", 403, f"This token cannot pass on {scope!r}.", "Log in and make it there.")


def _narrower(scope: str, held: tuple[str, ...]) -> bool:
    return scope in held or scope_allows(held, scope)


def list_tokens(tx: Tx, caller: Caller) -> list[Token]:
    access.signed_in(tx, caller, "token.read")
    return tokens.tokens(tx, caller.user_id)


def revoke_token(tx: Tx, caller: Caller, token_id: str) -> None:
    access.signed_in(tx, caller, "token.write")
    if not tokens.revoke(tx, caller.user_id, token_id):
        raise not_found("token", token_id)
    tx.audit("token.revoke", org_id=identity.platform_org_id(tx), kind="token", id=token_id)


def end_others(tx: Tx, caller: Caller) -> int:
    """Every other login and token of one's own."""
    access.signed_in(tx, caller, "token.write")
    ended = tokens.revoke_all(tx, caller.user_id, but=caller.token_id)
    org_id = identity.platform_org_id(tx)
    tx.audit("token.revoke_others", org_id=org_id, kind="user", id=caller.user_id, ended=ended)
    return ended
