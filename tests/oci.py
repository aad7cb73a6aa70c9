"""A real registry on this machine, for as long as a test needs it; and one that does what a test says."""

import base64
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest

PROGRAM = "docker-registry"
NAME, PASSWORD = "builder", "secret"
# bcrypt of the password, which is all that the registry reads.
_HASH = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"
_CONFIG = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {directory}/blobs}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_AUTH = "auth: {{htpasswd: {{realm: tests, path: {directory}/htpasswd}}}}\n"

needs_registry = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"not installed: {PROGRAM}")


@contextmanager
def registry(directory: Path, *, login: bool = False) -> Iterator[str]:
    """Its address, like 127.0.0.1:5000."""
    directory.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = _CONFIG + (_AUTH if login else "")
    (directory / "config.yml").write_text(said.format(directory=directory, port=port))
    (directory / "htpasswd").write_text(f"{NAME}:{_HASH}\n")
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([PROGRAM, "serve", directory / "config.yml"], stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/v2/", process, directory / "log")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            build_opener(ProxyHandler({})).open(url, timeout=5).close()
        except HTTPError:
            return  # it wants to know who asks
        except OSError:
            time.sleep(0.02)
        else:
            return


def credentials(file: Path, place: str, name: str = NAME, password: str = PASSWORD) -> Path:
    encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
    file.write_text(json.dumps({"auths": {place: {"auth": encoded}}, "credsStore": "desktop"}))
    return file


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def web_server(answer: Answer) -> Iterator[str]:
    """Its address; every request is answered by `answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def respond(request: BaseHTTPRequestHandler, status: int, content: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(content)
