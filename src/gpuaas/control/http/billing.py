"""Routes: price books, statements, budgets."""

from typing import Any

from litestar import Response, delete, get, post, put

from gpuaas.control.app import budgets, prices, statements
from gpuaas.control.http.endpoint import Req, Result, mutate, read
from gpuaas.control.http.moments import first_of, moment
from gpuaas.control.http.params import Month, Name
from gpuaas.control.store.transaction import Tx
from gpuaas.model.identity import Caller
from gpuaas.model.price import PriceBook, Prices
from gpuaas.model.statement import Statement, digest
from gpuaas.model.usage import total
from gpuaas.wire import api


@get("/prices", opt={"action": "price.read"}, sync_to_thread=True, summary="All price books, the newest first")
def list_prices(request: Req) -> Response[api.PriceBookPage]:
    def work(tx: Tx, caller: Caller) -> api.PriceBookPage:
        books, valid = prices.list_books(tx, caller)
        return api.PriceBookPage([_book(book, book.version == valid) for book in books], None)

    return read(request, work)


@post(
    "/prices",
    opt={"action": "price.write"},
    sync_to_thread=True,
    summary="Publish the next price book (platform administrators)",
)
def publish_prices(request: Req, data: api.NewPriceBook) -> Response[api.PriceBookView]:
    valid_from, found = moment(data.valid_from), Prices(data.offers, data.gpus, data.cpu, data.memory_gib)

    def work(tx: Tx, caller: Caller) -> Result:
        book = prices.publish(tx, caller, found, valid_from, data.note or "")
        return Result(_book(book, book.valid_from <= tx.now), 201)

    return mutate(request, work, data)


@get(
    "/projects/{project:str}/statements",
    opt={"action": "statement.read"},
    sync_to_thread=True,
    summary="The closed months of a project, the newest first",
)
def list_statements(request: Req, project: Name) -> Response[api.StatementPage]:
    return read(
        request,
        lambda tx, caller: api.StatementPage(
            [_closed(item, None) for item in statements.list_statements(tx, caller, project)], None
        ),
    )


@get(
    "/projects/{project:str}/statements/{month:str}",
    opt={"action": "statement.read"},
    sync_to_thread=True,
    summary="A month of a project, derived again and compared with what was closed",
)
def show_statement(request: Req, project: Name, month: Month) -> Response[api.StatementView]:
    return read(request, lambda tx, caller: _shown(statements.show(tx, caller, project, first_of(month))))


@get(
    "/orgs/{org:str}/statements/{month:str}",
    opt={"action": "org_usage.read"},
    sync_to_thread=True,
    summary="A month of an organisation: that of every project",
)
def show_org_statement(request: Req, org: Name, month: Month) -> Response[api.OrgStatementView]:
    def work(tx: Tx, caller: Caller) -> api.OrgStatementView:
        org_id, found = statements.show_org(tx, caller, org, first_of(month))
        items = [_shown(item) for item in found]
        return api.OrgStatementView(org_id, month, sum(item.amount_micros for item in items), items)

    return read(request, work)


@get(
    "/projects/{project:str}/budget",
    opt={"action": "budget.read"},
    sync_to_thread=True,
    summary="What a project means to spend this month, and what it has spent",
)
def show_budget(request: Req, project: Name) -> Response[api.BudgetView]:
    return read(request, lambda tx, caller: _budget(budgets.of_project(tx, caller, project)))


@put(
    "/projects/{project:str}/budget",
    opt={"action": "budget.write"},
    sync_to_thread=True,
    summary="Set what a project means to spend in a month; events tell when 50, 80 and 100 % are reached",
)
def set_budget(request: Req, project: Name, data: api.NewBudget) -> Response[api.BudgetView]:
    return mutate(
        request,
        lambda tx, caller: Result(_budget(budgets.set_project(tx, caller, project, data.amount_micros))),
        data,
    )


@delete(
    "/projects/{project:str}/budget", opt={"action": "budget.write"}, sync_to_thread=True, summary="No budget any more"
)
def remove_budget(request: Req, project: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        budgets.set_project(tx, caller, project, None)
        return Result(None, 204)

    return mutate(request, work)


@get(
    "/orgs/{org:str}/budget",
    opt={"action": "org_usage.read"},
    sync_to_thread=True,
    summary="What an organisation means to spend this month, and what it has spent",
)
def show_org_budget(request: Req, org: Name) -> Response[api.BudgetView]:
    return read(request, lambda tx, caller: _budget(budgets.of_org(tx, caller, org)))


@put(
    "/orgs/{org:str}/budget",
    opt={"action": "org_budget.write"},
    sync_to_thread=True,
    summary="Set what an organisation means to spend in a month, all its projects together",
)
def set_org_budget(request: Req, org: Name, data: api.NewBudget) -> Response[api.BudgetView]:
    return mutate(
        request, lambda tx, caller: Result(_budget(budgets.set_org(tx, caller, org, data.amount_micros))), data
    )


@delete("/orgs/{org:str}/budget", opt={"action": "org_budget.write"}, sync_to_thread=True, summary="No budget any more")
def remove_org_budget(request: Req, org: Name) -> Response[None]:
    def work(tx: Tx, caller: Caller) -> Result:
        budgets.set_org(tx, caller, org, None)
        return Result(None, 204)

    return mutate(request, work)


def _book(book: PriceBook, valid: bool) -> api.PriceBookView:
    p = book.prices
    return api.PriceBookView(
        book.version,
        book.valid_from,
        valid,
        p.offers,
        p.gpus,
        p.cpu,
        p.memory_gib,
        book.note,
        book.created_by,
        book.created_at,
    )


def _closed(item: Statement, intact: bool | None) -> api.StatementView:
    return api.StatementView(
        item.project_id,
        f"{item.starts_at:%Y-%m}",
        item.starts_at,
        item.ends_at,
        item.lines,
        item.amount_micros,
        bytes(item.hash).hex(),
        item.created_at,
        intact,
    )


def _shown(item: statements.Shown) -> api.StatementView:
    if item.closed is not None:
        return _closed(item.closed, item.intact)
    return api.StatementView(
        item.project_id,
        f"{item.starts_at:%Y-%m}",
        item.starts_at,
        item.ends_at,
        len(item.lines),
        total(item.lines).amount_micros,
        digest(item.project_id, item.starts_at, item.ends_at, item.lines).hex(),
        None,
        None,
    )


def _budget(item: budgets.Standing) -> api.BudgetView:
    return api.BudgetView(
        item.org_id, item.project_id, f"{item.month:%Y-%m}", item.amount_micros, item.spent_micros, item.alerts
    )


ROUTES: list[Any] = [
    *(list_prices, publish_prices, list_statements, show_statement, show_org_statement),
    *(show_budget, set_budget, remove_budget, show_org_budget, set_org_budget, remove_org_budget),
]
