"""Where webhooks point in tests: a real server on a real port that behaves as it is told, and remembers everything."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler], None]


def answer(status: int = 200, **headers: str) -> Behaviour:
    def behave(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"ok")

    return behave


def endless(status: int) -> Behaviour:
    """A body without an end, as fast as it is read."""

    def behave(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.end_headers()
        while True:
            request.wfile.write(b"x" * 65536)

    return behave


class Target:
    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.script: list[Behaviour] = []  # then `usual`
        self.usual = answer()
        self.released = threading.Event()

    def hang(self, request: BaseHTTPRequestHandler) -> None:
        """Says nothing until the test is over."""
        self.released.wait(60)

    def drip(self, request: BaseHTTPRequestHandler) -> None:
        """A header every now and then, for ever: each read succeeds, and nothing ever ends."""
        request.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not self.released.wait(0.05):
            request.wfile.write(b"X-More: x\r\n")

    def wait_for(self, count: int, seconds: float = 20.0) -> list[tuple[dict[str, str], bytes]]:
        until = time.monotonic() + seconds
        while len(self.requests) < count and time.monotonic() < until:
            time.sleep(0.01)
        assert len(self.requests) >= count, f"{len(self.requests)} of {count}"
        return list(self.requests)


@contextmanager
def target() -> Iterator[Target]:
    made = Target()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            behave = made.script.pop(0) if made.script else made.usual
            made.requests.append((dict(self.headers.items()), body))
            behave(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that hung up

    with Server(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.released.set()
            server.shutdown()
            thread.join()
