"""Routes: quotas of projects and organisations."""

from typing import Any

from litestar import Response, delete, get, put

from gpuaas.control.app import quotas
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.quota import KINDS, Standing
from gpuaas.wire import api

ONE = "/projects/{project:str}/quotas/{quota:str}"
ONE_OF_ORG = "/orgs/{org:str}/quotas/{quota:str}"


@get("/projects/{project:str}/quotas", opt={"action": "quota.read"}, sync_to_thread=True,
     summary="What a project and its organisation may have, and what they use")  # fmt: skip
def list_quotas(request: Req, project: Name) -> Response[api.QuotaPage]:
    return read(request, lambda tx, caller: _page(quotas.of_project(tx, caller, project)))


@put(ONE, opt={"action": "quota.write"}, sync_to_thread=True, summary="Limit what a project may have (tenant admins)")
def set_quota(request: Req, project: Name, quota: Name, data: api.NewQuota) -> Response[api.QuotaPage]:
    return mutate(
        request, lambda tx, caller: Result(_page(quotas.set_project(tx, caller, project, quota, data.most))), data
    )


@delete(ONE, opt={"action": "quota.write"}, sync_to_thread=True, summary="No such limit any more")
def remove_quota(request: Req, project: Name, quota: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        quotas.set_project(tx, caller, project, quota, None)
        return Result(None, 204)

    return mutate(request, work)


@get("/orgs/{org:str}/quotas", opt={"action": "org_quota.read"}, sync_to_thread=True,
     summary="What an organisation may have, all its projects together, and what it uses")  # fmt: skip
def list_org_quotas(request: Req, org: Name) -> Response[api.QuotaPage]:
    return read(request, lambda tx, caller: _page(quotas.of_org(tx, caller, org)))


@put(ONE_OF_ORG, opt={"action": "org_quota.write"}, sync_to_thread=True, summary="Limit an organisation (operators)")
def set_org_quota(request: Req, org: Name, quota: Name, data: api.NewQuota) -> Response[api.QuotaPage]:
    return mutate(request, lambda tx, caller: Result(_page(quotas.set_org(tx, caller, org, quota, data.most))), data)


@delete(ONE_OF_ORG, opt={"action": "org_quota.write"}, sync_to_thread=True, summary="No such limit any more")
def remove_org_quota(request: Req, org: Name, quota: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        quotas.set_org(tx, caller, org, quota, None)
        return Result(None, 204)

    return mutate(request, work)


def _page(found: list[Standing]) -> api.QuotaPage:
    items = [api.QuotaView(s.scope, s.owner_id, s.kind, KINDS[s.kind], s.most, round(s.used, 3)) for s in found]
    return api.QuotaPage(items, None)


ROUTES: list[Any] = [list_quotas, set_quota, remove_quota, list_org_quotas, set_org_quota, remove_org_quota]
