"""Routes: what was used and what it comes to; corrections."""

from datetime import datetime
from typing import Any

from litestar import Response, get, post

from gpuaas.control.app import usage
from gpuaas.control.http import pages
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.moments import moment
from gpuaas.control.http.params import By, Cursor, From, Limit, Name, To
from gpuaas.control.store import names
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.usage import GROUPS, Line, Total, grouped, total
from gpuaas.wire import api

SECOND = 1_000_000


@get(
    "/projects/{project:str}/usage",
    opt={"action": "usage.read"},
    sync_to_thread=True,
    summary="What a project used and what it comes to, by machine, user or offer",
)
def project_usage(
    request: Req, project: Name, from_: From = None, to: To = None, by: By = "allocation"
) -> Response[api.UsageView]:
    begin, end = moment(from_), moment(to)
    return read(request, lambda tx, caller: summary(tx, *usage.of_project(tx, caller, project, begin, end), by))


@get(
    "/orgs/{org:str}/usage",
    opt={"action": "org_usage.read"},
    sync_to_thread=True,
    summary="What an organisation used and what it comes to",
)
def org_usage(
    request: Req, org: Name, from_: From = None, to: To = None, by: By = "project"
) -> Response[api.UsageView]:
    begin, end = moment(from_), moment(to)
    return read(request, lambda tx, caller: summary(tx, *usage.of_org(tx, caller, org, begin, end), by))


@get(
    "/projects/{project:str}/usage/lines",
    opt={"action": "usage.read"},
    sync_to_thread=True,
    summary="Every line behind a project's usage: one interval at one price",
)
def project_lines(
    request: Req, project: Name, from_: From = None, to: To = None, limit: Limit = 100, cursor: Cursor = None
) -> Response[api.UsageLinePage]:
    begin, end, after = moment(from_), moment(to), pages.position(cursor)
    return read(
        request,
        lambda tx, caller: _page(tx, usage.of_project(tx, caller, project, begin, end)[1], after, limit),
    )


@get(
    "/orgs/{org:str}/usage/lines",
    opt={"action": "org_usage.read"},
    sync_to_thread=True,
    summary="Every line behind an organisation's usage",
)
def org_lines(
    request: Req, org: Name, from_: From = None, to: To = None, limit: Limit = 100, cursor: Cursor = None
) -> Response[api.UsageLinePage]:
    begin, end, after = moment(from_), moment(to), pages.position(cursor)
    return read(request, lambda tx, caller: _page(tx, usage.of_org(tx, caller, org, begin, end)[1], after, limit))


@post(
    "/usage/corrections",
    opt={"action": "usage.correct"},
    sync_to_thread=True,
    summary="Do not charge for some time after all: a new entry, nothing is edited (platform administrators)",
)
def correct(request: Req, data: api.NewCorrection) -> Response[api.CorrectionView]:
    begin, end = moment(data.starts_at), moment(data.ends_at)

    def work(tx: Tx, caller: Caller) -> Result:
        made = usage.correct(tx, caller, data.usage, begin, end, data.reason)
        return Result(api.CorrectionView(**made.__dict__), 201)

    return mutate(request, work, data)


def summary(tx: Tx, period: usage.Period, lines: list[Line], by: str) -> api.UsageView:
    totals = grouped(lines, GROUPS[by])
    known = names.of(tx, by, [item.key for item in totals])
    items = [_total(item, known.get(item.key, item.key)) for item in totals]
    return api.UsageView(*period, by, _total(total(lines), ""), items)


def _total(item: Total, name: str) -> api.UsageTotal:
    return api.UsageTotal(
        item.key, name, item.microseconds / SECOND, item.gpu_microseconds / SECOND, item.amount_micros
    )


def _page(tx: Tx, lines: list[Line], after: tuple[datetime, str] | None, limit: int) -> api.UsageLinePage:
    left = [line for line in lines if after is None or _position(line) > after]
    items, more = pages.cut(left, limit)
    known = names.of(tx, "allocation", [line.resource_id for line in items])
    cursor = pages.encode(*_position(items[-1])) if more else None
    return api.UsageLinePage([_line(line, known.get(line.resource_id, "")) for line in items], cursor)


def _position(line: Line) -> tuple[datetime, str]:
    return line.started_at, f"{line.usage_id} {line.correction_id or ''}"


def _line(line: Line, name: str) -> api.UsageLine:
    said = {key: value for key, value in line.__dict__.items() if key != "microseconds"}
    seconds, gpu_seconds = line.microseconds / SECOND, line.gpu_microseconds / SECOND
    return api.UsageLine(name=name, seconds=seconds, gpu_seconds=gpu_seconds, **said)


ROUTES: list[Any] = [project_usage, org_usage, project_lines, org_lines, correct]
