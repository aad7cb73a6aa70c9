"""What a month may cost. Nothing is stopped; events tell when 50, 80 and 100 % are reached."""

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import BudgetView, NewBudget


class Budgets:
    """Of a project, or with `org` of an organisation with all its projects."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def show(self, project: str | None = None, *, org: str | None = None) -> BudgetView:
        return self._api.get(_place(project, org), BudgetView)

    def set(self, amount_micros: int, project: str | None = None, *, org: str | None = None) -> BudgetView:
        return self._api.put(_place(project, org), NewBudget(amount_micros), BudgetView)

    def remove(self, project: str | None = None, *, org: str | None = None) -> None:
        self._api.delete(_place(project, org))


def _place(project: str | None, org: str | None) -> str:
    return path("orgs", org, "budget") if org else path("projects", project or "", "budget")
