"""Routes: the service accounts of a project, their tokens and keys."""

from typing import Any

from litestar import Response, delete, get, post

from gpuaas.control.app import service_accounts as app
from gpuaas.control.http import views
from gpuaas.control.http.endpoint import Req, Result, address_of, mutate, read
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api

ALL = "/projects/{project:str}/service-accounts"
ONE = ALL + "/{account:str}"
READ: dict[str, Any] = {"opt": {"action": app.READ}, "sync_to_thread": True}
WRITE: dict[str, Any] = {"opt": {"action": app.WRITE}, "sync_to_thread": True}


@get(ALL, **READ, summary="Service accounts of a project")
def list_accounts(request: Req, project: Name) -> Response[api.ServiceAccountPage]:
    def work(tx: Tx, caller: Caller) -> api.ServiceAccountPage:
        found = app.list_accounts(tx, caller, project)
        return api.ServiceAccountPage([views.service_account(*item) for item in found], None)

    return read(request, work)


@post(ALL, **WRITE, summary="Make a service account: a role in this project, and nowhere else")
def create_account(request: Req, project: Name, data: api.NewServiceAccount) -> Response[api.ServiceAccountView]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(views.service_account(*app.create(tx, caller, project, data.name, data.role)), 201)

    return mutate(request, work, data)


@delete(ONE, **WRITE, status_code=200, summary="Delete a service account; tokens, streams and SSH sessions end at once")
def delete_account(request: Req, project: Name, account: Name) -> Response[api.DeletedServiceAccount]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(api.DeletedServiceAccount(app.remove(tx, caller, project, account)))

    return mutate(request, work)


@get(ONE + "/tokens", **WRITE, summary="Valid tokens of a service account")
def list_tokens(request: Req, project: Name, account: Name) -> Response[api.TokenPage]:
    def work(tx: Tx, caller: Caller) -> api.TokenPage:
        found = app.list_tokens(tx, caller, project, account)
        return api.TokenPage([views.token(item, caller.token_id) for item in found], None)

    return read(request, work)


@post(ONE + "/tokens", **WRITE, summary="Make a token for a service account; its secret is shown once")
def create_token(request: Req, project: Name, account: Name, data: api.NewServiceToken) -> Response[api.IssuedToken]:
    source = address_of(request.scope)

    def work(tx: Tx, caller: Caller) -> Result:
        wanted = (data.name, data.scopes, data.lifetime_seconds, source)
        token, secret = app.create_token(tx, caller, project, account, *wanted)
        return Result(api.IssuedToken(views.token(token), secret), 201, secret=True)

    return mutate(request, work, data)


@delete(ONE + "/tokens/{token:str}", **WRITE, summary="Revoke a token of a service account at once")
def revoke_token(request: Req, project: Name, account: Name, token: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        app.revoke_token(tx, caller, project, account, token)
        return Result(None, 204)

    return mutate(request, work)


@get(ONE + "/keys", **READ, summary="SSH public keys of a service account")
def list_keys(request: Req, project: Name, account: Name) -> Response[api.KeyPage]:
    def work(tx: Tx, caller: Caller) -> api.KeyPage:
        return api.KeyPage([views.key(item) for item in app.list_keys(tx, caller, project, account)], None)

    return read(request, work)


@post(ONE + "/keys", **WRITE, summary="Add an SSH public key to a service account")
def add_key(request: Req, project: Name, account: Name, data: api.NewKey) -> Response[api.KeyView]:
    def work(tx: Tx, caller: Caller) -> Result:
        return Result(views.key(app.add_key(tx, caller, project, account, data.name, data.public_key)), 201)

    return mutate(request, work, data)


@delete(ONE + "/keys/{key:str}", **WRITE, summary="Remove an SSH public key of a service account")
def remove_key(request: Req, project: Name, account: Name, key: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        app.remove_key(tx, caller, project, account, key)
        return Result(None, 204)

    return mutate(request, work)


ROUTES: list[Any] = [
    list_accounts,
    create_account,
    delete_account,
    list_tokens,
    create_token,
    revoke_token,
    list_keys,
    add_key,
    remove_key,
]
