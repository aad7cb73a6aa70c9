"""Routes: users, and what an administrator ends for them."""

from typing import Any

from litestar import Response, delete, get, post

from gpuaas.control.app import users
from gpuaas.control.http import pages, views
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Cursor, Limit, Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api


@get("/users", opt={"action": "user.read"}, sync_to_thread=True, summary="All users (operators)")
def list_users(request: Req, limit: Limit = 100, cursor: Cursor = None) -> Response[api.UserPage]:
    after = pages.word(cursor)

    def work(tx: Tx, caller: Caller) -> api.UserPage:
        items, more = pages.cut(users.list_users(tx, caller, after, limit + 1), limit)
        return api.UserPage([views.user(item) for item in items], pages.encode(items[-1].email) if more else None)

    return read(request, work)


@post("/users", opt={"action": "user.write"}, sync_to_thread=True, summary="Make a user (platform administrators)")
def create_user(request: Req, data: api.NewUser) -> Response[api.UserView]:
    return mutate(
        request,
        lambda tx, caller: Result(
            views.user(users.create_user(tx, caller, data.email, data.name, data.password, data.platform_role)),
            201,
        ),
        data,
    )


@post(
    "/users/{user:str}/disable",
    opt={"action": "user.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Logins, tokens, streams and SSH sessions of a user end at once, and they cannot come back",
)
def disable_user(request: Req, user: Name, data: api.DisableUser) -> Response[api.UserView]:
    return mutate(
        request,
        lambda tx, caller: Result(views.user(users.disable(tx, caller, user, data.confirm, data.reason))),
        data,
    )


@post(
    "/users/{user:str}/enable",
    opt={"action": "user.write"},
    status_code=200,
    sync_to_thread=True,
    summary="Let a disabled user log in again; nothing that ended comes back",
)
def enable_user(request: Req, user: Name) -> Response[api.UserView]:
    return mutate(request, lambda tx, caller: Result(views.user(users.enable(tx, caller, user))))


@get("/users/{user:str}/tokens", opt={"action": "user.read"}, sync_to_thread=True, summary="A user's valid tokens")
def list_tokens(request: Req, user: Name) -> Response[api.TokenPage]:
    def work(tx: Tx, caller: Caller) -> api.TokenPage:
        return api.TokenPage([views.token(t, caller.token_id) for t in users.list_tokens(tx, caller, user)], None)

    return read(request, work)


@delete(
    "/users/{user:str}/tokens",
    opt={"action": "user.write"},
    status_code=200,
    sync_to_thread=True,
    summary="End every login and token of a user; they may log in again",
)
def end_tokens(request: Req, user: Name) -> Response[api.Ended]:
    return mutate(request, lambda tx, caller: Result(api.Ended(users.end_tokens(tx, caller, user))))


ROUTES: list[Any] = [list_users, create_user, disable_user, enable_user, list_tokens, end_tokens]
