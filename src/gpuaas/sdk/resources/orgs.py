"""Organisations, for platform administrators."""

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewOrg, OrgView


class Orgs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, slug: str, name: str, *, admin: str) -> OrgView:
        """`admin`, a user's id or address, becomes its first tenant_admin."""
        return self._api.post(path("orgs"), NewOrg(slug, name, admin), OrgView)
