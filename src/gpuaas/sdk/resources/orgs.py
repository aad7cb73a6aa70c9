"""Organisations: made by platform administrators; their own decide who is in them."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import MemberPage, MemberView, NewOrg, OrgView


class Orgs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, slug: str, name: str, *, admin: str) -> OrgView:
        """`admin`, a user's id or address, becomes its first tenant_admin."""
        return self._api.post(path("orgs"), NewOrg(slug, name, admin), OrgView)

    def members(self, org: str) -> Iterator[MemberView]:
        return self._api.pages(path("orgs", org, "members"), MemberPage)

    def remove_member(self, org: str, user: str) -> None:
        """Out of all its projects too. What they have open there, SSH sessions included, ends at once."""
        self._api.delete(path("orgs", org, "members", user))
