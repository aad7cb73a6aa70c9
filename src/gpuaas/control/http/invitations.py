"""Routes: invite, list, revoke, accept."""

from typing import Any

from litestar import Response, delete, get, post

from gpuaas.control.app import invitations as app
from gpuaas.control.app.sessions import hash_password
from gpuaas.control.http import views
from gpuaas.control.http.endpoint import (
    Req,
    Result,
    address_of,
    correlation_of,
    limiter_of,
    mutate,
    public,
    read,
    store_of,
)
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.invitation import Invitation
from gpuaas.wire import api

PROJECT = "/projects/{project:str}/invitations"
ORG = "/orgs/{org:str}/invitations"
OF_PROJECT: dict[str, Any] = {"opt": {"action": "member.write"}, "sync_to_thread": True}
OF_ORG: dict[str, Any] = {"opt": {"action": "org.invite"}, "sync_to_thread": True}


@post(PROJECT, **OF_PROJECT, summary="Invite an address into a project; the secret is shown once, and no mail is sent")
def invite_to_project(request: Req, project: Name, data: api.NewInvitation) -> Response[api.IssuedInvitation]:
    def work(tx: Tx, caller: Caller) -> Result:
        return _issued(tx, *app.invite_to_project(tx, caller, project, data.email, data.role, data.lifetime_seconds))

    return mutate(request, work, data)


@get(PROJECT, **OF_PROJECT, summary="Open invitations into a project")
def list_for_project(request: Req, project: Name) -> Response[api.InvitationPage]:
    return read(request, lambda tx, caller: _page(tx, app.list_for_project(tx, caller, project)))


@delete(PROJECT + "/{invitation:str}", **OF_PROJECT, summary="Revoke an invitation into a project")
def revoke_for_project(request: Req, project: Name, invitation: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        app.revoke_for_project(tx, caller, project, invitation)
        return Result(None, 204)

    return mutate(request, work)


@post(ORG, **OF_ORG, summary="Invite an address into an organisation; the secret is shown once, and no mail is sent")
def invite_to_org(request: Req, org: Name, data: api.NewOrgInvitation) -> Response[api.IssuedInvitation]:
    def work(tx: Tx, caller: Caller) -> Result:
        return _issued(tx, *app.invite_to_org(tx, caller, org, data.email, data.role, data.lifetime_seconds))

    return mutate(request, work, data)


@get(ORG, **OF_ORG, summary="Open invitations into an organisation")
def list_for_org(request: Req, org: Name) -> Response[api.InvitationPage]:
    return read(request, lambda tx, caller: _page(tx, app.list_for_org(tx, caller, org)))


@delete(ORG + "/{invitation:str}", **OF_ORG, summary="Revoke an invitation into an organisation")
def revoke_for_org(request: Req, org: Name, invitation: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        app.revoke_for_org(tx, caller, org, invitation)
        return Result(None, 204)

    return mutate(request, work)


@post(
    "/invitations/accept",
    opt={"action": "invitation.accept"},
    status_code=200,
    sync_to_thread=True,
    summary="Accept an invitation for your address",
)
def accept(request: Req, data: api.AcceptInvitation) -> Response[api.InvitationView]:
    return mutate(request, lambda tx, caller: Result(_view(tx, app.accept(tx, caller, data.secret))), data)


@post(
    "/invitations/signup",
    opt={"action": "invitation.signup"},
    sync_to_thread=True,
    summary="Make an account with an invitation, and log in",
)
def signup(request: Req, data: api.Signup) -> Response[api.IssuedToken]:
    limiter_of(request).admit_login(address_of(request.scope))
    store_of(request).transact(app.check_signup, data.secret, correlation_id=correlation_of(request))
    hashed = hash_password(data.password)

    def work(tx: Tx) -> Result:
        token, secret = app.signup(tx, data.secret, data.name, hashed, address_of(request.scope))
        return Result(api.IssuedToken(views.token(token), secret), 201)

    return public(request, work)


def _issued(tx: Tx, made: Invitation, secret: str) -> Result:
    return Result(api.IssuedInvitation(_view(tx, made), secret), 201, secret=True)


def _view(tx: Tx, found: Invitation) -> api.InvitationView:
    return views.invitation(found, *app.names(tx, found))


def _page(tx: Tx, found: list[Invitation]) -> api.InvitationPage:
    return api.InvitationPage([_view(tx, item) for item in found], None)


ROUTES: list[Any] = [
    invite_to_project,
    list_for_project,
    revoke_for_project,
    invite_to_org,
    list_for_org,
    revoke_for_org,
    accept,
    signup,
]
