"""Months of a project, closed once nothing of them can change."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import OrgStatementView, StatementPage, StatementView


class Statements:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, project: str) -> Iterator[StatementView]:
        """Those that are closed, the newest first."""
        return self._api.pages(path("projects", project, "statements"), StatementPage)

    def show(self, project: str, month: str) -> StatementView:
        """A month like 2030-01, derived from the ledger again; `intact` says whether it is still what was closed."""
        return self._api.get(path("projects", project, "statements", month), StatementView)

    def org(self, org: str, month: str) -> OrgStatementView:
        """The month of every project."""
        return self._api.get(path("orgs", org, "statements", month), OrgStatementView)
