"""Routes: log in, who am I, tokens, keys, projects, members, orgs."""

from typing import Any

from litestar import Response, delete, get, post, put

from gpuaas.control.app import identity, keys, sessions
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
from gpuaas.control.http.pace import Pace
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@post("/login", opt={"action": "login"}, status_code=200, sync_to_thread=True, summary="Log in with a password")
def login(request: Req, data: api.Login) -> Response[api.IssuedToken]:
    address, pace = address_of(request.scope), pace_of(request)
    limiter_of(request).admit_login(address)
    pace.attempt(data.email, address)
    found = store_of(request).transact(sessions.password_of, data.email, correlation_id=correlation_of(request))
    user = sessions.check_password(found, data.password)
    pace.right(data.email, address)

    def work(tx: Tx) -> Result:
        token, secret = sessions.login(tx, user, address)
        return Result(api.IssuedToken(views.token(token), secret))

    return public(request, work)


def pace_of(request: Req) -> Pace:
    pace: Pace = request.app.state.pace
    return pace


@get("/whoami", opt={"action": "self.read"}, sync_to_thread=True, summary="Who is asking, and what they can see")
def whoami(request: Req) -> Response[api.Whoami]:
    def work(tx: Tx, caller: Caller) -> api.Whoami:
        user, orgs, projects = identity.whoami(tx, caller)
        return api.Whoami(
            views.user(user),
            caller.token_id,
            list(caller.scopes),
            [views.org(org, role) for org, role in orgs],
            [views.project(project, role) for project, role in projects],
        )

    return read(request, work)


@get("/tokens", opt={"action": "token.read"}, sync_to_thread=True, summary="Your valid tokens and logins")
def list_tokens(request: Req) -> Response[api.TokenPage]:
    def work(tx: Tx, caller: Caller) -> api.TokenPage:
        return api.TokenPage([views.token(item, caller.token_id) for item in sessions.list_tokens(tx, caller)], None)

    return read(request, work)


@post("/tokens", opt={"action": "token.write"}, sync_to_thread=True, summary="Make a token; its secret is shown once")
def create_token(request: Req, data: api.NewToken) -> Response[api.IssuedToken]:
    source = address_of(request.scope)

    def work(tx: Tx, caller: Caller) -> Result:
        token, secret = sessions.create_token(tx, caller, data.name, data.scopes, data.lifetime_seconds, source)
        return Result(api.IssuedToken(views.token(token), secret), 201, secret=True)

    return mutate(request, work, data)


@delete("/tokens/{token:str}", opt={"action": "token.write"}, sync_to_thread=True, summary="Revoke a token at once")
def revoke_token(request: Req, token: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        sessions.revoke_token(tx, caller, token)
        return Result(None, 204)

    return mutate(request, work)


@delete(
    "/tokens",
    opt={"action": "token.write"},
    status_code=200,
    sync_to_thread=True,
    summary="End every other login and token of yours",
)
def revoke_others(request: Req) -> Response[api.Ended]:
    return mutate(request, lambda tx, caller: Result(api.Ended(sessions.end_others(tx, caller))))


@get("/keys", opt={"action": "key.read"}, sync_to_thread=True, summary="Your SSH public keys")
def list_keys(request: Req) -> Response[api.KeyPage]:
    return read(request, lambda tx, caller: api.KeyPage([views.key(k) for k in keys.list_keys(tx, caller)], None))


@post("/keys", opt={"action": "key.write"}, sync_to_thread=True, summary="Add an SSH public key")
def add_key(request: Req, data: api.NewKey) -> Response[api.KeyView]:
    return mutate(
        request,
        lambda tx, caller: Result(views.key(keys.add_key(tx, caller, data.name, data.public_key)), 201),
        data,
    )


@delete("/keys/{key:str}", opt={"action": "key.write"}, sync_to_thread=True, summary="Remove an SSH public key")
def remove_key(request: Req, key: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        keys.remove_key(tx, caller, key)
        return Result(None, 204)

    return mutate(request, work)


@get("/projects", opt={"action": "project.read"}, sync_to_thread=True, summary="Projects you can see")
def list_projects(request: Req) -> Response[api.ProjectPage]:
    return read(
        request,
        lambda tx, caller: api.ProjectPage(
            [views.project(project, role) for project, role in identity.list_projects(tx, caller)], None
        ),
    )


@post("/projects", opt={"action": "project.create"}, sync_to_thread=True, summary="Make a project in an organisation")
def create_project(request: Req, data: api.NewProject) -> Response[api.ProjectView]:
    return mutate(
        request,
        lambda tx, caller: Result(
            views.project(identity.create_project(tx, caller, data.slug, data.name, data.org), "admin"), 201
        ),
        data,
    )


@get(
    "/projects/{project:str}/members",
    opt={"action": "member.read"},
    sync_to_thread=True,
    summary="Who is in a project, with which role",
)
def list_members(request: Req, project: Name) -> Response[api.MemberPage]:
    return read(
        request,
        lambda tx, caller: api.MemberPage([views.member(m) for m in identity.list_members(tx, caller, project)], None),
    )


@put(
    "/projects/{project:str}/network",
    opt={"action": "project.network"},
    sync_to_thread=True,
    summary="Let the machines of a project talk to each other, or not; each follows at its next start",
)
def set_network(request: Req, project: Name, data: api.ProjectNetwork) -> Response[api.ProjectView]:
    return mutate(
        request,
        lambda tx, caller: Result(views.project(identity.set_network(tx, caller, project, data.open), "admin")),
        data,
    )


@put(
    "/projects/{project:str}/members/{user:str}",
    opt={"action": "member.write"},
    sync_to_thread=True,
    summary="Add a member, or change their role",
)
def set_member(request: Req, project: Name, user: Name, data: api.MemberRole) -> Response[api.MemberView]:
    return mutate(
        request,
        lambda tx, caller: Result(views.member(identity.set_member(tx, caller, project, user, data.role))),
        data,
    )


@delete(
    "/projects/{project:str}/members/{user:str}",
    opt={"action": "member.write"},
    sync_to_thread=True,
    summary="Take a member out of a project",
)
def remove_member(request: Req, project: Name, user: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        identity.remove_member(tx, caller, project, user)
        return Result(None, 204)

    return mutate(request, work)


@post("/orgs", opt={"action": "org.write"}, sync_to_thread=True, summary="Make an organisation")
def create_org(request: Req, data: api.NewOrg) -> Response[api.OrgView]:
    return mutate(
        request,
        lambda tx, caller: Result(
            views.org(identity.create_org(tx, caller, data.slug, data.name, data.admin), None), 201
        ),
        data,
    )


ROUTES: list[Any] = [
    login,
    whoami,
    list_tokens,
    create_token,
    revoke_token,
    revoke_others,
    list_keys,
    add_key,
    remove_key,
    list_projects,
    create_project,
    list_members,
    set_network,
    set_member,
    remove_member,
    create_org,
]
