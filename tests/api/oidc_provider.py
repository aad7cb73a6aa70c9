"""A real OpenID provider in a process of its own, and a front door before it that can bend what it says.

The provider is `oidc-provider-mock` (Authlib's server side). The front door checks PKCE, which that one does not, and
lets a test play a provider that lies, rotates its keys or is away.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from joserfc import jwk, jwt

from gpuaas.control.app.oidc import s256

Claims = dict[str, Any]


class Front:
    def __init__(self, behind: str) -> None:
        self.behind = httpx.Client(base_url=behind, follow_redirects=False, timeout=20)
        self.key = jwk.RSAKey.generate_key(2048, parameters={"kid": "one"})
        self.bend: Callable[[Claims], str] | None = None  # from the honest claims to the ID token that is sent
        self.metadata: Claims = {}  # said instead of the honest ones
        self.away = False
        self.proven: list[bool] = []  # whether each code came with the right verifier
        self._challenges: dict[str, str] = {}
        front = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, content = front.answer(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}"

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.away:
            return 503, {}, b"{}"
        asked = {name: value for name, value in headers.items() if name.lower() in ("authorization", "content-type")}
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        form = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
        token = urlsplit(path).path == "/oauth2/token"
        if token and not self._right(form):
            return 400, {"Content-Type": "application/json"}, b'{"error": "invalid_grant"}'
        found = self.behind.request(method, path, content=body, headers={**asked, "Host": self.host})
        given = {name: found.headers[name] for name in ("Content-Type", "Location") if name in found.headers}
        content = found.content
        if "Location" in given and (code := parse_qs(urlsplit(given["Location"]).query).get("code")):
            self._challenges[code[0]] = query.get("code_challenge", "")
        if path == "/jwks" and self.bend is not None:
            content = json.dumps({"keys": [self.key.as_dict(private=False)]}).encode()
        if path == "/.well-known/openid-configuration":
            content = json.dumps({**found.json(), **self.metadata}).encode()
        if token and self.bend is not None and found.status_code == 200:
            granted = found.json()
            content = json.dumps({**granted, "id_token": self.bend(honest(granted["id_token"]))}).encode()
        return found.status_code, given, content

    def signed(self, claims: Claims, key: Any = None, **header: str) -> str:
        made = key or self.key
        return jwt.encode({"alg": "RS256", "kid": made.kid, **header}, claims, made, algorithms=["RS256", "HS256"])

    def person(self, subject: str, **claims: Any) -> None:
        self.behind.put(f"/users/{subject}", json=claims).raise_for_status()

    def _right(self, form: dict[str, str]) -> bool:
        challenge = self._challenges.get(form.get("code", ""))
        self.proven.append(bool(challenge) and s256(form.get("code_verifier", "")) == challenge)
        return self.proven[-1]


def honest(id_token: str) -> Claims:
    import base64

    middle = id_token.split(".")[1]
    found: Claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return found


@contextmanager
def provider() -> Iterator[Front]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "oidc_provider_mock",
        "--port",
        str(port),
        "--require-nonce",
        "true",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    front = Front(f"http://127.0.0.1:{port}")
    thread = threading.Thread(target=front.server.serve_forever, daemon=True)
    thread.start()
    try:
        _wait(front, running)
        yield front
    finally:
        running.terminate()
        running.wait(10)
        front.server.shutdown()
        front.server.server_close()
        front.behind.close()


def _wait(front: Front, running: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert running.poll() is None, "the provider did not start"
        try:
            front.behind.get("/.well-known/openid-configuration").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError("the provider does not answer")


class Browser:
    """Keeps cookies, follows nothing by itself."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.http = httpx.Client(follow_redirects=False, timeout=30)

    def begin(self, challenge: str, state: str = "s" * 16, redirect: str | None = None) -> str:
        """Where the provider is to be asked."""
        more = {} if redirect is None else {"redirect": redirect}
        asked = urlencode({"challenge": challenge, "state": state, **more})
        answer = self.http.get(f"{self.server}/oidc/login?{asked}")
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def at_provider(self, url: str, subject: str) -> str:
        """Signs in there. Where that sends us."""
        answer = self.http.post(url, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])

    def back(self, url: str) -> httpx.Response:
        return self.http.get(url)
