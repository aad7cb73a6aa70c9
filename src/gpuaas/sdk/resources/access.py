"""Who gets into a machine, and who was there."""

from collections.abc import Iterator, Sequence

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import Changed, MachineKeyPage, MachineKeys, MachineKeyView, SessionPage, SessionView


class Access:
    def __init__(self, api: Api) -> None:
        self._api = api

    def keys(self, name: str) -> Iterator[MachineKeyView]:
        """The keys that get into a machine."""
        return self._api.pages(path("allocations", name, "keys"), MachineKeyPage)

    def set_keys(self, name: str, keys: Sequence[str], *, idempotency_key: str | None = None) -> Changed:
        """Exactly these of the owner's registered keys, by id or name; none is allowed. Sessions of others end.

        Accepted, not finished: `client.wait(changed.operation)` waits until the machine has them.
        """
        return self._api.put(path("allocations", name, "keys"), MachineKeys(list(keys)), Changed, idempotency_key)

    def sessions(self, name: str) -> Iterator[SessionView]:
        """Who is and was logged in, newest first."""
        return self._api.pages(path("allocations", name, "sessions"), SessionPage)
