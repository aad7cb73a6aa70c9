"""A real HTTP server on a real port that plays back scripted answers, and remembers what it was asked."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """`chunks` are sent one by one without a length; `broken` hangs up before the end (or instead of an answer)."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] | None = None
    broken: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


HANG_UP = Answer(status=0, broken=True)


def problem(status: int, code: str, detail: str = "No.", hint: str = "", **more: Any) -> Answer:
    body = {"type": f"urn:gpuaas:problem:{code}", "title": code, "status": status, "code": code, "detail": detail}
    headers = {"Content-Type": "application/problem+json", "X-Correlation-ID": "cr-from-the-header"}
    return Answer(status, {**body, "hint": hint, "correlation_id": "cr-1", **more}, headers)


class Playback:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._scripts: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self.url = ""

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """These answers, in order; the last one again and again."""
        self._scripts[(method, path)] = list(answers)

    def next(self, method: str, path: str) -> Answer:
        script = self._scripts.get((method, path))
        if not script:
            return problem(404, "not_found", f"There is nothing at {path}.")
        return script.pop(0) if len(script) > 1 else script[0]

    def to(self, method: str, path: str) -> list[Asked]:
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]


def _encoded(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"" if body is None else json.dumps(body).encode()


@contextmanager
def playback() -> Iterator[Playback]:
    played = Playback()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            path, _, query = self.path.partition("?")
            body = self.rfile.read(length)
            played.asked.append(Asked(self.command, path, query, dict(self.headers.items()), body))
            self._send(played.next(self.command, path))

        def _send(self, answer: Answer) -> None:
            if answer.status == 0:
                self.close_connection = True
                return
            encoded = _encoded(answer.body)
            self.send_response(answer.status)
            for name, value in {"X-Correlation-ID": "cr-1", **answer.headers}.items():
                self.send_header(name, value)
            if answer.chunks is None:
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in answer.chunks:
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            if answer.broken:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that hung up

    with Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        played.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield played
        finally:
            server.shutdown()
            thread.join()
