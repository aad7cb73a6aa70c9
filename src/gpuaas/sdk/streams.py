"""A stream of bytes to a machine's sshd, through the server. For whoever cannot reach the machine's node."""

import ssl
from contextlib import ExitStack
from types import TracebackType
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from gpuaas.sdk.errors import ApiError, Unreachable, from_answer
from gpuaas.sdk.transport import LOOPBACK, Transport
from gpuaas.wire.streams import CODES, DONE, END, MAX_FRAME_BYTES

OPEN_SECONDS = 20.0


class Stream:
    """One thread may send while another receives. A slow reader slows the machine down; nothing piles up here."""

    def __init__(self, server: str, socket: ClientConnection, opened: ExitStack) -> None:
        self._server = server
        self._socket = socket
        self._opened = opened

    def send(self, data: bytes) -> None:
        """Does nothing when the other side is gone: `receive` says how it ended."""
        if data:
            self._send(data)

    def end(self) -> None:
        """Nothing more will be sent; what the machine has to say still comes."""
        self._send(END)

    def receive(self) -> bytes:
        """The next bytes; none when the machine has said everything."""
        try:
            while True:
                data = self._socket.recv()
                if data and isinstance(data, bytes):
                    return data
        except ConnectionClosed as closed:
            said = closed.rcvd
            if said is not None and said.code == DONE:
                return b""
            if said is not None and said.code in CODES:
                raise ApiError(CODES[said.code], said.code - 4000, said.reason) from closed
            raise Unreachable(self._server, "the stream was cut off") from closed

    def close(self) -> None:
        self._opened.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except ConnectionClosed:
            return

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_stream(transport: Transport, path: str) -> Stream:
    parts = urlsplit(transport.server)
    secure = parts.scheme == "https"
    address = f"{'wss' if secure else 'ws'}{transport.server.removeprefix(parts.scheme)}{path}"
    opened = ExitStack()
    try:
        socket = opened.enter_context(
            connect(
                address,
                ssl=ssl.create_default_context() if secure else None,
                additional_headers=transport.authorization(),
                compression=None,  # what ssh sends does not compress
                max_size=MAX_FRAME_BYTES,
                open_timeout=OPEN_SECONDS,
                ping_timeout=None,  # the pong waits behind data that nobody reads
                proxy=None if parts.hostname in LOOPBACK else True,
            )
        )
    except InvalidStatus as refused:
        answer = refused.response
        raise from_answer(
            answer.status_code, bytes(answer.body or b""), answer.headers.get("X-Correlation-ID", "")
        ) from refused
    except (OSError, WebSocketException) as error:
        raise Unreachable(transport.server, str(error) or type(error).__name__) from error
    return Stream(transport.server, socket, opened)
