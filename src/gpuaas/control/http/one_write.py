"""The head of an answer and its body leave together: one system call here, and whoever asked wakes up once."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class _Together:
    """A transport that waits with a first piece for a second one, at most until the event loop's next turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.alone = transport
        self.is_closing = transport.is_closing  # asked with every answer
        self._soon = asyncio.get_running_loop().call_soon
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.alone, name)

    def write(self, data: bytes) -> None:
        self._written.append(data)
        if len(self._written) == 1:
            self._soon(self._send)
        else:
            self._send()

    def close(self) -> None:
        self._send()
        self.alone.close()

    def _send(self) -> None:
        written, self._written = self._written, []
        if written:
            self.alone.write(b"".join(written))


class OneWrite(HttpToolsProtocol):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Together(transport))  # type: ignore[arg-type]

    def handle_websocket_upgrade(self) -> None:
        """A stream has its own way to write, and is not to wait for anything."""
        together: Any = self.transport
        self.transport = together.alone
        super().handle_websocket_upgrade()
