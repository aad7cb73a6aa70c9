"""Your SSH public keys."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import KeyPage, KeyView, NewKey


class Keys:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[KeyView]:
        return self._api.pages(path("keys"), KeyPage)

    def add(self, name: str, public_key: str) -> KeyView:
        """`public_key` is one line, as in a .pub file."""
        return self._api.post(path("keys"), NewKey(name, public_key), KeyView)

    def remove(self, name: str) -> None:
        """By id or name."""
        self._api.delete(path("keys", name))
