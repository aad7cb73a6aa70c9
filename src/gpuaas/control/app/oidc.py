"""Single sign-on: from what the provider proved to an account, and from there to a token.

The browser holds a cookie, the CLI a verifier; each sees only its own half, and the database only hashes of both.
"""

import hashlib
from base64 import urlsafe_b64encode
from datetime import timedelta
from hmac import compare_digest

from gpuaas.control.app.identity import leave
from gpuaas.control.app.sessions import login
from gpuaas.control.app.users import end_everything
from gpuaas.control.store import identity, keys, oidc
from gpuaas.control.store.transaction import Tx
from gpuaas.kit.errors import Problem, Taken, conflict
from gpuaas.model.identity import OIDC, SERVICE, Token, User
from gpuaas.model.oidc import Attempt, Proof, Settings, domain, roles
from gpuaas.model.permission import TENANT_MEMBER

BROWSER = timedelta(minutes=10)  # to sign in at the provider
REDIRECTED, PASTED = timedelta(minutes=1), timedelta(minutes=5)  # to bring the code


def begin(tx: Tx, redirect: str | None, client_state: str, challenge: str) -> tuple[str, str]:
    """What goes through the provider as `state`, and what stays in the browser."""
    tx.authorized.add("oidc.login")
    state, cookie = tx.ids.secret(), tx.ids.secret()
    oidc.begin(tx, state, cookie, redirect, client_state, challenge, tx.now + BROWSER)
    return state, cookie


def take(tx: Tx, state: str, cookie: str) -> Attempt:
    tx.authorized.add("oidc.login")
    attempt = oidc.take(tx, state, cookie)
    if attempt is None:
        raise Problem(
            "bad_state",
            403,
            "This login was not begun in this browser, is over already, or took too long.",
            "Begin again: `gpuaas login --oidc`.",
        )
    return attempt


def finish(tx: Tx, attempt: Attempt, proof: Proof) -> str:
    """The code that the CLI changes into a token."""
    allowing = oidc.allowing(tx, domain(proof.email))
    user = _account(tx, proof, allowing)
    if user.disabled_at is not None or user.kind == SERVICE:
        raise Problem("disabled", 403, f"The account {user.email} is disabled.", "Ask an administrator.")
    tx.actor = user.id
    for settings in allowing:
        _follow(tx, settings, user, proof.groups)
    code = "gpc_" + tx.ids.secret()
    oidc.succeed(tx, attempt.id, user.id, code, tx.now + (REDIRECTED if attempt.redirect else PASTED))
    return code


def redeem(tx: Tx, code: str, verifier: str, source: str) -> tuple[Token, str] | None:
    """None when it is not worth anything; whatever it was, it is not any more."""
    tx.authorized.add("oidc.token")
    found = oidc.redeem(tx, code)
    if found is None or not compare_digest(s256(verifier), found[1]):
        return None
    user = identity.user(tx, found[0])
    assert user is not None
    if user.disabled_at is not None:
        return None
    return login(tx, user, source, OIDC)


def s256(text: str) -> str:
    """As PKCE (RFC 7636) has it."""
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _account(tx: Tx, proof: Proof, allowing: list[Settings]) -> User:
    known = oidc.user_of(tx, proof.issuer, proof.subject)
    user = identity.user(tx, known or proof.email)
    if known is None and user is not None:
        _link(tx, proof, user)
    if user is None:
        user = _newcomer(tx, proof, allowing)
    return user


def _link(tx: Tx, proof: Proof, user: User) -> None:
    """An account that was there before gets a second way in. One whose address nobody proved gets a new owner."""
    try:
        oidc.link(tx, proof.issuer, proof.subject, user.id)
    except Taken as error:
        raise conflict(
            "other_subject",
            f"{user.email} belongs to another account of the identity provider.",
            "If the address was given to a new person, ask an administrator to disable the old account.",
        ) from error
    taken_over = oidc.prove_address(tx, user.id)
    if taken_over:
        end_everything(tx, user.id)
        for key in keys.keys(tx, user.id):
            keys.remove_key(tx, user.id, key.id)
    org_id = identity.platform_org_id(tx)
    said = {"issuer": proof.issuer, "subject": proof.subject}
    tx.audit("oidc.link", org_id=org_id, kind="user", id=user.id, email=user.email, taken_over=taken_over, **said)


def _newcomer(tx: Tx, proof: Proof, allowing: list[Settings]) -> User:
    if not allowing:
        raise Problem(
            "not_invited",
            403,
            f"There is no account {proof.email}, and no organisation here takes addresses of {domain(proof.email)}.",
            "Ask for an invitation, or ask an administrator to allow the domain.",
        )
    user = identity.insert_user(tx, proof.email, proof.name, None, None)
    if user is None:
        raise conflict("user_exists", "The account was made in this moment.", "Log in again.")
    oidc.link(tx, proof.issuer, proof.subject, user.id)
    said = {"issuer": proof.issuer, "subject": proof.subject, "by": "oidc"}
    tx.audit("user.create", org_id=identity.platform_org_id(tx), kind="user", id=user.id, email=user.email, **said)
    for settings in allowing:
        identity.set_org_member(tx, settings.org_id, user.id, TENANT_MEMBER)
        tx.audit("org.join", org_id=settings.org_id, kind="user", id=user.id, email=user.email, by="oidc")
    return user


def _follow(tx: Tx, settings: Settings, user: User, groups: frozenset[str]) -> None:
    """Roles that groups give come and go with them. What an admin gave by hand stays."""
    wanted, held = roles(settings, groups), oidc.managed(tx, settings.org_id, user.id)
    for project in identity.projects_of(tx, settings.org_id):
        role, managed = held.get(project.id, (None, True))
        if not managed or role == wanted.get(project.id):
            continue
        about = {"org_id": project.org_id, "project_id": project.id, "kind": "user", "id": user.id}
        if project.id in wanted:
            identity.set_member(tx, project.id, user.id, wanted[project.id], managed=True)
            if identity.org_role(tx, project.org_id, user.id) is None:
                identity.set_org_member(tx, project.org_id, user.id, TENANT_MEMBER)
            tx.audit("member.set", **about, role=wanted[project.id], by="oidc")
            tx.emit("member.set", **about, role=wanted[project.id], by="oidc")
        else:
            leave(tx, project, user.id)
            tx.audit("member.remove", **about, by="oidc")
            tx.emit("member.remove", **about, by="oidc")
