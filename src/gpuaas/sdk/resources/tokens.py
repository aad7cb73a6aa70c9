"""Your API tokens."""

from collections.abc import Iterator, Sequence

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import Ended, IssuedToken, NewToken, TokenPage, TokenView


class Tokens:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[TokenView]:
        """Those that are valid, logins too; `current` marks the one that asks."""
        return self._api.pages(path("tokens"), TokenPage)

    def create(
        self, name: str, *, scopes: Sequence[str] = ("*",), lifetime_seconds: int = 90 * 24 * 3600
    ) -> IssuedToken:
        """The secret is in the answer, and nowhere else ever after."""
        return self._api.post(path("tokens"), NewToken(name, [*scopes], lifetime_seconds), IssuedToken)

    def revoke(self, token_id: str) -> None:
        self._api.delete(path("tokens", token_id))

    def revoke_others(self) -> int:
        """Every login and token of yours but the one that asks. How many ended."""
        return self._api.delete_for(path("tokens"), Ended).ended
