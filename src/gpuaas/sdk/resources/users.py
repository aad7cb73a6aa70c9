"""Users, for platform administrators."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import DisableUser, Ended, NewUser, TokenPage, TokenView, UserPage, UserView


class Users:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[UserView]:
        return self._api.pages(path("users"), UserPage)

    def create(
        self, email: str, name: str, *, password: str | None = None, platform_role: str | None = None
    ) -> UserView:
        """Without a password they cannot log in yet. `platform_role`: platform_admin, _ops or _builder."""
        return self._api.post(path("users"), NewUser(email, name, password, platform_role), UserView)

    def disable(self, user: str, *, confirm: str, reason: str = "not said") -> UserView:
        """Logins, tokens and SSH sessions end at once. `confirm` repeats the address."""
        return self._api.post(path("users", user, "disable"), DisableUser(confirm, reason), UserView)

    def enable(self, user: str) -> UserView:
        """They may log in again; nothing that ended comes back by itself."""
        return self._api.post(path("users", user, "enable"), None, UserView)

    def tokens(self, user: str) -> Iterator[TokenView]:
        return self._api.pages(path("users", user, "tokens"), TokenPage)

    def end_tokens(self, user: str) -> int:
        """Every login and token of theirs; they may log in again. How many ended."""
        return self._api.delete_for(path("users", user, "tokens"), Ended).ended
