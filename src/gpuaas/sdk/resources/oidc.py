"""Single sign-on: logging in, and what an organisation lets it do."""

from collections.abc import Iterable

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    IssuedToken,
    OidcCode,
    OidcDomains,
    OidcGroup,
    OidcGroups,
    OidcOffer,
    OidcSettingsView,
)


class Oidc:
    def __init__(self, api: Api) -> None:
        self._api = api

    def offer(self) -> OidcOffer:
        """Whether the server has it, and where a browser begins."""
        return self._api.get(path("oidc"), OidcOffer)

    def redeem(self, code: str, verifier: str) -> IssuedToken:
        """What the browser brought, with the verifier whose challenge the login began with."""
        return self._api.post(path("oidc", "token"), OidcCode(code, verifier), IssuedToken)

    def show(self, org: str) -> OidcSettingsView:
        return self._api.get(path("orgs", org, "oidc"), OidcSettingsView)

    def set_domains(self, org: str, domains: Iterable[str]) -> OidcSettingsView:
        """Addresses of exactly these become members at their first login. For platform administrators."""
        return self._api.put(path("orgs", org, "oidc", "domains"), OidcDomains(list(domains)), OidcSettingsView)

    def set_groups(self, org: str, groups: Iterable[tuple[str, str, str]]) -> OidcSettingsView:
        """Exactly these (group, project, role). For admins of the organisation."""
        wanted = OidcGroups([OidcGroup(*item) for item in groups])
        return self._api.put(path("orgs", org, "oidc", "groups"), wanted, OidcSettingsView)
