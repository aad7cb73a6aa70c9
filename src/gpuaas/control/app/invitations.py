"""Invitations: an admin gets a one-time secret for an address; whoever has that address joins with it.

No mail is sent: the inviter hands the link on. It binds the address, so that a link in the wrong hands is of no use to
somebody who has an account; an account that is made with it is not taken as proof of the address.
"""

from datetime import timedelta
from typing import Any

from gpuaas.control.app import access
from gpuaas.control.app.identity import checked_address
from gpuaas.control.app.sessions import LOGIN_LIFETIME
from gpuaas.control.store import identity, invitations, tokens
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, conflict, not_found
from gpuaas.model.identity import PASSWORD, SERVICE, Caller, Token
from gpuaas.model.invitation import Invitation, higher
from gpuaas.model.permission import ADMIN, TENANT_ADMIN, TENANT_MEMBER

MAX_PENDING = 200


def invite_to_project(
    tx: Tx, caller: Caller, project_name: str, email: str, role: str, lifetime_seconds: int
) -> tuple[Invitation, str]:
    project = access.in_project(tx, caller, "member.write", project_name)
    return _invite(tx, caller, project.org_id, project.id, email, role, lifetime_seconds)


def invite_to_org(
    tx: Tx, caller: Caller, org_name: str, email: str, role: str, lifetime_seconds: int
) -> tuple[Invitation, str]:
    org = access.in_org(tx, caller, "org.invite", org_name)
    return _invite(tx, caller, org.id, None, email, role, lifetime_seconds)


def list_for_project(tx: Tx, caller: Caller, project_name: str) -> list[Invitation]:
    project = access.in_project(tx, caller, "member.write", project_name)
    return invitations.pending(tx, project.org_id, project.id)


def list_for_org(tx: Tx, caller: Caller, org_name: str) -> list[Invitation]:
    return invitations.pending(tx, access.in_org(tx, caller, "org.invite", org_name).id, None)


def revoke_for_project(tx: Tx, caller: Caller, project_name: str, id: str) -> None:
    project = access.in_project(tx, caller, "member.write", project_name)
    _revoke(tx, project.org_id, project.id, id)


def revoke_for_org(tx: Tx, caller: Caller, org_name: str, id: str) -> None:
    _revoke(tx, access.in_org(tx, caller, "org.invite", org_name).id, None, id)


def accept(tx: Tx, caller: Caller, secret: str) -> Invitation:
    """As somebody who has an account."""
    access.signed_in(tx, caller, "invitation.accept")
    found = _valid(tx, secret)
    if caller.kind == SERVICE or caller.email != found.email:
        raise Problem(
            "other_address",
            403,
            "This invitation is for another address than yours.",
            "Sign in as whom it is for, or ask for one for your address.",
        )
    _join(tx, found, caller.user_id)
    return found


def check_signup(tx: Tx, secret: str) -> None:
    """Before the password is hashed, which is slow on purpose."""
    tx.authorized.add("invitation.signup")
    found = _valid(tx, secret)
    if identity.user(tx, found.email) is not None:
        raise conflict("user_exists", f"{found.email} has an account.", "Sign in, then accept the invitation.")


def signup(tx: Tx, secret: str, name: str, password_hash: str, source: str) -> tuple[Token, str]:
    """As somebody new, who is logged in then."""
    check_signup(tx, secret)
    found = _valid(tx, secret)
    user = identity.insert_user(tx, found.email, name, password_hash, None, email_proven=False)
    if user is None:
        raise conflict("user_exists", f"{found.email} has an account.", "Sign in, then accept the invitation.")
    tx.actor = user.id
    until = tx.now + LOGIN_LIFETIME
    token, shown = tokens.insert_token(tx, user.id, "login", ("*",), until, kind=PASSWORD, source=source)
    _join(tx, found, user.id, new=True, token=token.id)
    return token, shown


def names(tx: Tx, found: Invitation) -> tuple[str, str | None]:
    """The slugs of the org and the project."""
    org = identity.org(tx, found.org_id)
    project = identity.project(tx, found.project_id) if found.project_id else None
    assert org is not None
    return org.slug, project.slug if project else None


def _invite(
    tx: Tx, caller: Caller, org_id: str, project_id: str | None, email: str, role: str, lifetime_seconds: int
) -> tuple[Invitation, str]:
    checked_address(email)
    if len(invitations.pending(tx, org_id, project_id)) >= MAX_PENDING:
        raise conflict("too_many_invitations", f"{MAX_PENDING} invitations are open.", "Revoke some of them first.")
    until = tx.now + timedelta(seconds=lifetime_seconds)
    made, secret = invitations.insert_invitation(tx, org_id, project_id, email, role, caller.user_id, until)
    _record(tx, "invitation.create", made)
    return made, secret


def _revoke(tx: Tx, org_id: str, project_id: str | None, id: str) -> None:
    revoked = invitations.revoke(tx, org_id, project_id, id)
    if revoked is None:
        raise not_found("invitation", id)
    _record(tx, "invitation.revoke", revoked)


def _valid(tx: Tx, secret: str) -> Invitation:
    """An invitation is worth what its inviter may do now."""
    found = invitations.by_secret(tx, secret)
    if found is None or not _may_invite(tx, found):
        raise Problem(
            "bad_invitation",
            403,
            "The invitation is unknown, used, revoked or expired.",
            "Ask whoever invited you for a new one.",
        )
    return found


def _may_invite(tx: Tx, found: Invitation) -> bool:
    if not identity.enabled(tx, found.created_by):
        return False
    if identity.org_role(tx, found.org_id, found.created_by) == TENANT_ADMIN:
        return True
    return found.project_id is not None and identity.member_role(tx, found.project_id, found.created_by) == ADMIN


def _join(tx: Tx, found: Invitation, user_id: str, **data: Any) -> None:
    if not invitations.use(tx, found, user_id):
        raise conflict("bad_invitation", "The invitation was used or revoked in this moment.", "Ask for a new one.")
    in_org = identity.org_role(tx, found.org_id, user_id)
    if found.project_id is None:
        identity.set_org_member(tx, found.org_id, user_id, higher(in_org, found.role))
    else:
        role = higher(identity.member_role(tx, found.project_id, user_id), found.role)
        identity.set_member(tx, found.project_id, user_id, role)
        if in_org is None:
            identity.set_org_member(tx, found.org_id, user_id, TENANT_MEMBER)
    _record(tx, "invitation.accept", found, user=user_id, **data)


def _record(tx: Tx, action: str, found: Invitation, **data: Any) -> None:
    data = {"email": found.email, "role": found.role, **data}
    tx.audit(action, org_id=found.org_id, project_id=found.project_id, kind="invitation", id=found.id, **data)
    if found.project_id is not None:
        about = {"org_id": found.org_id, "project_id": found.project_id}
        tx.emit(action, **about, kind="invitation", id=found.id, **data)
