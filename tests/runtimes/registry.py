"""Registries of a test's own: a web server that answers what the test says, also wrongly."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Registry:
    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes | Callable[[], Iterator[bytes]]] = {}
        self.asked: list[str] = []


@contextmanager
def registry() -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            data = found.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            try:
                for part in data() if callable(data) else (data,):
                    self.wfile.write(part)
            except (BrokenPipeError, ConnectionResetError):
                pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Registry(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
