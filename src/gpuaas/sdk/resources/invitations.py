"""Invitations into projects and organisations."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    AcceptInvitation,
    InvitationPage,
    InvitationView,
    IssuedInvitation,
    IssuedToken,
    NewInvitation,
    NewOrgInvitation,
    Signup,
)

WEEK = 7 * 24 * 3600


class Invitations:
    """Give a project or an `org`, not both."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(
        self, email: str, role: str, *, project: str | None = None, org: str | None = None, lifetime_seconds: int = WEEK
    ) -> IssuedInvitation:
        """No mail is sent: hand the secret on to them. It is in the answer, and nowhere else ever after."""
        kind = NewOrgInvitation if org else NewInvitation
        return self._api.post(_path(project, org), kind(email, role, lifetime_seconds), IssuedInvitation)

    def list(self, *, project: str | None = None, org: str | None = None) -> Iterator[InvitationView]:
        """Those that are open."""
        return self._api.pages(_path(project, org), InvitationPage)

    def revoke(self, id: str, *, project: str | None = None, org: str | None = None) -> None:
        self._api.delete(f"{_path(project, org)}/{path(id).rpartition('/')[2]}")

    def accept(self, secret: str) -> InvitationView:
        """As whom this client is signed in; the address must be the invited one."""
        return self._api.post(path("invitations", "accept"), AcceptInvitation(secret), InvitationView)

    def sign_up(self, secret: str, name: str, password: str) -> IssuedToken:
        """Makes an account with the invited address; the answer's secret signs in."""
        return self._api.post(path("invitations", "signup"), Signup(secret, name, password), IssuedToken)


def _path(project: str | None, org: str | None) -> str:
    return path("orgs", org, "invitations") if org else path("projects", project or "", "invitations")
