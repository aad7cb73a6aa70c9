"""Routes: what machines use, and how they are."""

from typing import Any

import msgspec
from litestar import Response, get

from gpuaas.control.app import metrics
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Req, read
from gpuaas.control.http.moments import moment
from gpuaas.control.http.params import Cursor, Limit, Name, OptionalName, Since, Step
from gpuaas.control.store.transaction import Tx
from gpuaas.model.allocation import Allocation
from gpuaas.model.health import Health
from gpuaas.model.identity import Caller
from gpuaas.model.metrics import Point
from gpuaas.wire import metrics as wire


@get(
    "/allocations/{allocation:str}/metrics",
    opt={"action": "allocation.read"},
    sync_to_thread=True,
    summary="What one machine used: at most 1000 points of the last 24 hours",
)
def show_metrics(request: Req, allocation: Name, since: Since = None, step: Step = None) -> Response[wire.MetricsView]:
    begin = moment(since)
    return read(request, lambda tx, caller: _metrics(metrics.metrics(tx, caller, allocation, begin, step)))


@get(
    "/allocations/{allocation:str}/health",
    opt={"action": "allocation.read"},
    sync_to_thread=True,
    summary="How one machine is, and why",
)
def show_health(request: Req, allocation: Name) -> Response[wire.HealthView]:
    return read(request, lambda tx, caller: _health(*metrics.health(tx, caller, allocation)))


@get(
    "/allocation-health",
    opt={"action": "allocation.read"},
    sync_to_thread=True,
    summary="How the machines are that you can see, and what they use right now",
)
def list_health(
    request: Req, project: OptionalName = None, limit: Limit = 100, cursor: Cursor = None
) -> Response[wire.HealthPage]:
    after = pages.position(cursor)

    def work(tx: Tx, caller: Caller) -> wire.HealthPage:
        items, more = pages.cut(metrics.list_health(tx, caller, project, after, limit + 1), limit)
        last = items[-1][0] if more else None
        return wire.HealthPage(
            [_health(*item) for item in items], pages.encode(last.created_at, last.id) if last else None
        )

    return read(request, work)


def _metrics(found: metrics.Metrics) -> wire.MetricsView:
    return msgspec.convert(found, wire.MetricsView, from_attributes=True)


def _health(item: Allocation, health: Health, use: Point | None) -> wire.HealthView:
    return wire.HealthView(
        item.id,
        item.name,
        item.project_id,
        item.state,
        health.status,
        [wire.FindingView(finding.code, finding.level, finding.message) for finding in health.findings],
        None if use is None else msgspec.convert(use, wire.UseView, from_attributes=True),
    )


ROUTES: list[Any] = [show_metrics, show_health, list_health]
