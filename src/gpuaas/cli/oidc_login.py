"""`gpuaas login --oidc`: a browser signs in, and brings a code back to a port that only this machine reaches.

The code is worth nothing without the verifier, which never leaves this process until it is sent to the server.
"""

import base64
import hashlib
import http.server
import secrets
import threading
import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import click

from gpuaas.cli import output
from gpuaas.cli.invalid import Invalid

if TYPE_CHECKING:
    from gpuaas.sdk import Client

SECONDS = 300.0


def log_in(client: "Client", *, browser: bool) -> str:
    """The secret of a new token."""
    from gpuaas.sdk import ApiError

    offer = client.oidc.offer()
    if not offer.enabled:
        raise ApiError("no_single_sign_on", 404, f"{client.server} has no single sign-on.", "Log in with a password.")
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    asked = {"challenge": challenge, "state": state}
    if not browser:
        output.note("Open this in a browser, on any machine, and paste the code that it shows:")
        output.note(f"  {offer.login_url}?{urlencode(asked)}")
        code = click.prompt("Code", hide_input=True, err=True).strip()
        return client.oidc.redeem(code, verifier).secret
    with _Waiting(state) as waiting:
        url = f"{offer.login_url}?{urlencode({**asked, 'redirect': waiting.address})}"
        opened = webbrowser.open(url)
        output.note("Your browser was asked to open this; if it did not, open it on this machine:" if opened else
                    "Open this in a browser on this machine (with none here, use --no-browser):")  # fmt: skip
        output.note(f"  {url}")
        return client.oidc.redeem(waiting.code(), verifier).secret


class _Waiting:
    """One answer on a loopback port: the first that knows our state."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._came = threading.Event()
        self._answer: dict[str, str] = {}
        waiting = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = waiting._take(self.path)
                said = b"You can close this window." if known else b"This is not the login that is waited for."
                self.send_response(200 if known else 400)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: the path holds the code."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/callback"

    def code(self) -> str:
        if not self._came.wait(SECONDS):
            raise Invalid("Nobody signed in within five minutes.", "Run it again, or use --no-browser.")
        if "code" not in self._answer:
            raise Invalid(self._answer.get("error_description") or "The login was refused.")
        return self._answer["code"]

    def _take(self, path: str) -> bool:
        parts = urlsplit(path)
        found = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != "/callback" or not secrets.compare_digest(
            found.get("state", "").encode(), self._state.encode()
        ):
            return False
        if not self._came.is_set():
            self._answer = found
            self._came.set()
        return True

    def __enter__(self) -> "_Waiting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
