"""Routes: who belongs to an organisation."""

from typing import Any

from litestar import Response, delete, get

from gpuaas.control.app import org_members
from gpuaas.control.http import views
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.wire import api

ALL = "/orgs/{org:str}/members"


@get(ALL, opt={"action": "org_member.read"}, sync_to_thread=True, summary="Who belongs to an organisation")
def list_org_members(request: Req, org: Name) -> Response[api.MemberPage]:
    return read(
        request,
        lambda tx, caller: api.MemberPage([views.member(m) for m in org_members.list_members(tx, caller, org)], None),
    )


@delete(
    ALL + "/{user:str}",
    opt={"action": "org_member.write"},
    sync_to_thread=True,
    summary="Take somebody out of an organisation and all its projects; what they have open there ends at once",
)
def remove_org_member(request: Req, org: Name, user: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        org_members.remove(tx, caller, org, user)
        return Result(None, 204)

    return mutate(request, work)


ROUTES: list[Any] = [list_org_members, remove_org_member]
