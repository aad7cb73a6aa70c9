"""Long changes: list, show, follow."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.sdk.follow import decoded, frames
from gpuaas.wire.api import OperationPage, OperationView

ENDED = frozenset({"succeeded", "failed", "superseded"})


class Operations:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self, allocation: str | None = None) -> Iterator[OperationView]:
        """Newest first; of one allocation, or of all that you see."""
        return self._api.pages(path("operations"), OperationPage, {"allocation": allocation})

    def show(self, operation_id: str) -> OperationView:
        return self._api.get(path("operations", operation_id), OperationView)

    def follow(self, operation_id: str, *, timeout_seconds: float | None = None) -> Iterator[OperationView]:
        """The whole operation each time that it changes. The last one is over: succeeded, failed or superseded.

        Lost connections are made again. TimeoutError when it is not over after `timeout_seconds`.
        """
        transport = self._api.transport
        deadline = None if timeout_seconds is None else transport.retry.clock() + timeout_seconds
        newest: OperationView | None = None
        for frame in frames(transport, path("operations", operation_id, "follow"), deadline=deadline):
            if frame.event != "operation":
                continue
            operation = decoded(frame, OperationView)
            if operation != newest:  # a new connection begins with what is known already
                newest = operation
                yield operation
            if operation.state in ENDED:
                return
