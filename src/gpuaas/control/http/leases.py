"""Routes: extend a lease; what the leads of a project have decided about leases."""

from typing import Any

from litestar import Response, get, post, put

from gpuaas.control.app import leases
from gpuaas.control.http import views
from gpuaas.control.http.allocations import shown_allocations
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.params import Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.lease import LeasePolicy
from gpuaas.wire import api


@post(
    "/allocations/{allocation:str}/extend",
    opt={"action": "allocation.extend"},
    status_code=200,
    sync_to_thread=True,
    summary="Let a machine stay longer; one that was stopped is started again",
)
def extend(request: Req, allocation: Name, data: api.Extend) -> Response[api.Extended]:
    def work(tx: Tx, caller: Caller) -> Result:
        found, operation = leases.extend(tx, caller, allocation, data.seconds)
        shown = shown_allocations(tx, [found])[0]
        return Result(api.Extended(shown, views.operation(operation) if operation else None))

    return mutate(request, work, data)


@get(
    "/projects/{project:str}/lease-policy",
    opt={"action": "lease.read"},
    sync_to_thread=True,
    summary="How long machines of a project may stay",
)
def show_policy(request: Req, project: Name) -> Response[api.LeasePolicyView]:
    return read(request, lambda tx, caller: _policy(leases.show_policy(tx, caller, project)))


@put(
    "/projects/{project:str}/lease-policy",
    opt={"action": "lease.write"},
    sync_to_thread=True,
    summary="Decide how long machines of a project may stay; its users can ask for less, not for more",
)
def set_policy(request: Req, project: Name, data: api.LeasePolicyRequest) -> Response[api.LeasePolicyView]:
    def work(tx: Tx, caller: Caller) -> Result:
        wanted = data.idle_seconds, data.idle_gpu_percent, data.max_duration_seconds
        return Result(_policy(leases.set_policy(tx, caller, project, *wanted)))

    return mutate(request, work, data)


def _policy(item: LeasePolicy) -> api.LeasePolicyView:
    return api.LeasePolicyView(item.project_id, item.idle_seconds, item.idle_gpu_percent, item.max_seconds)


ROUTES: list[Any] = [extend, show_policy, set_policy]
