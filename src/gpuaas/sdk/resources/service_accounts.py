"""Service accounts of a project: for programs."""

from collections.abc import Iterator, Sequence

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import (
    DeletedServiceAccount,
    IssuedToken,
    KeyPage,
    KeyView,
    NewKey,
    NewServiceAccount,
    NewServiceToken,
    ServiceAccountPage,
    ServiceAccountView,
    TokenPage,
    TokenView,
)


class ServiceAccounts:
    """`account` is a name or an id."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, project: str) -> Iterator[ServiceAccountView]:
        return self._api.pages(_path(project), ServiceAccountPage)

    def create(self, project: str, name: str, *, role: str = "editor") -> ServiceAccountView:
        return self._api.post(_path(project), NewServiceAccount(name, role), ServiceAccountView)

    def delete(self, project: str, account: str) -> Sequence[str]:
        """Tokens, streams and SSH sessions end at once. Answers the machines that are left to the project."""
        return self._api.delete_for(_path(project, account), DeletedServiceAccount).machines

    def tokens(self, project: str, account: str) -> Iterator[TokenView]:
        return self._api.pages(_path(project, account, "tokens"), TokenPage)

    def create_token(
        self, project: str, account: str, name: str, *, scopes: Sequence[str], lifetime_seconds: int = 90 * 24 * 3600
    ) -> IssuedToken:
        """The secret is in the answer, and nowhere else ever after."""
        wanted = NewServiceToken(name, [*scopes], lifetime_seconds)
        return self._api.post(_path(project, account, "tokens"), wanted, IssuedToken)

    def revoke_token(self, project: str, account: str, token_id: str) -> None:
        self._api.delete(_path(project, account, "tokens", token_id))

    def keys(self, project: str, account: str) -> Iterator[KeyView]:
        return self._api.pages(_path(project, account, "keys"), KeyPage)

    def add_key(self, project: str, account: str, name: str, public_key: str) -> KeyView:
        return self._api.post(_path(project, account, "keys"), NewKey(name, public_key), KeyView)

    def remove_key(self, project: str, account: str, key: str) -> None:
        self._api.delete(_path(project, account, "keys", key))


def _path(project: str, *more: str) -> str:
    return path("projects", project, "service-accounts", *more)
