"""Users, for platform administrators."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewUser, UserPage, UserView


class Users:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[UserView]:
        return self._api.pages(path("users"), UserPage)

    def create(
        self, email: str, name: str, *, password: str | None = None, platform_role: str | None = None
    ) -> UserView:
        """Without a password they cannot log in yet. `platform_role`: platform_admin or platform_ops."""
        return self._api.post(path("users"), NewUser(email, name, password, platform_role), UserView)
