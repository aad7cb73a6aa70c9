"""Server-sent events: bytes in, frames out, wherever the network cut them. No I/O."""

from dataclasses import dataclass

MAX_FRAME_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Frame:
    """`id` is the newest id seen on the stream, as the standard has it: it belongs into Last-Event-ID."""

    event: str
    data: str
    id: str


class Parser:
    """Feed it what arrives. Comments keep the line open and are dropped; `id` is kept across frames."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._after_cr and chunk.startswith(b"\n"):  # the second half of a CRLF
            chunk = chunk[1:]
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        self._rest += chunk
        if len(self._rest) > MAX_FRAME_BYTES or sum(map(len, self._data)) > MAX_FRAME_BYTES:
            raise ValueError("a frame of the stream is too large")
        *lines, self._rest = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return [frame for line in lines if (frame := self._line(line.decode("utf-8", "replace"))) is not None]

    def _line(self, line: str) -> Frame | None:
        if line == "":
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None

    def _dispatch(self) -> Frame | None:
        event, data = self._event or "message", self._data
        self._event, self._data = "", []
        return Frame(event, "\n".join(data), self.last_id) if data else None
