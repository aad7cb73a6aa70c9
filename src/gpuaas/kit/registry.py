"""A client of OCI registries (distribution-spec 1.1): blobs and manifests of one repository, over urllib.

It trusts nothing that it reads. Credentials go to the registry and its token service, and along no redirect.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from gpuaas.kit import registry_login
from gpuaas.kit.errors import Problem, invalid

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
PATIENCE_SECONDS = 10.0
SLOW_SECONDS = 600.0  # what a registry may take to look at a large blob that it was sent
_MOST_TOKEN_BYTES = 1 << 17
_REPOSITORY = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


@dataclass(frozen=True)
class Place:
    """A repository: registry.example/team/runtimes, over https unless it is on this machine or says http://."""

    url: str  # https://registry.example
    repository: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        scheme, _, rest = text.rpartition("://")
        parts = urlsplit(f"//{rest}")
        try:
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            host = ""
        repository = parts.path.strip("/")
        plain = "@" not in rest and not parts.query and not parts.fragment
        if scheme not in ("", "http", "https") or not (host and plain and _REPOSITORY.fullmatch(repository)):
            # What was said is not repeated: it may hold a password.
            said = "The registry must be named like registry.example/team/runtimes."
            raise invalid(said, "With a repository, in small letters, and without a name or password.")
        return cls(f"{scheme or ('http' if _is_here(host) else 'https')}://{parts.netloc}", repository)

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def is_here(self) -> bool:
        return _is_here(urlsplit(self.url).hostname or "")

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"


class Registry:
    """Safe to use from several threads: at worst one of them asks for a token that another has got."""

    def __init__(self, place: Place, credentials: Path | None = None) -> None:
        self.place = place
        self._credentials = credentials
        self._authorization = ""

    @contextmanager
    def blob(self, digest: str, offset: int = 0) -> Iterator[HTTPResponse]:
        """`digest`: sha256:... From `offset` on, where the registry knows ranges: see the answer's status."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._ask("GET", f"blobs/{digest}", headers=headers) as answer:
            yield answer

    def has_blob(self, digest: str) -> bool:
        try:
            with self._ask("HEAD", f"blobs/{digest}"):
                return True
        except HTTPError as error:
            if error.code == 404:
                return False
            raise

    def send_blob(self, digest: str, content: bytes | Path) -> None:
        with self._ask("POST", "blobs/uploads/", content=b"", action="pull,push") as answer:
            where = urljoin(answer.url, answer.headers.get("Location", ""))
        if _origin(where) != _origin(self.place.url):
            raise Problem("registry_refused", 502, f"{self.place.host} wants blobs to be sent to another server.")
        where += ("&" if urlsplit(where).query else "?") + urlencode({"digest": digest})
        headers = {"Content-Type": "application/octet-stream"}
        with self._ask("PUT", where, headers, content, "pull,push", SLOW_SECONDS):
            pass

    def send_manifest(self, tag: str, content: bytes) -> None:
        with self._ask("PUT", f"manifests/{tag}", {"Content-Type": MANIFEST}, content, "pull,push"):
            pass

    @contextmanager
    def _ask(
        self, method: str, path: str, headers: Mapping[str, str] = {}, content: bytes | Path | None = None,
        action: str = "pull", timeout: float = PATIENCE_SECONDS,
    ) -> Iterator[HTTPResponse]:  # fmt: skip
        url = urljoin(f"{self.place.url}/v2/{self.place.repository}/", path)
        with ExitStack() as stack:
            try:
                answer = self._open(stack, method, url, headers, content, timeout)
            except HTTPError as refused:
                if refused.code != 401:
                    raise
                with refused:
                    self._authorization = self._log_in(refused, action)
                answer = self._open(stack, method, url, headers, content, timeout)
            yield answer

    def _open(
        self, stack: ExitStack, method: str, url: str, headers: Mapping[str, str], content: bytes | Path | None,
        timeout: float,
    ) -> HTTPResponse:  # fmt: skip
        data: Any = content
        if isinstance(content, Path):
            data = stack.enter_context(content.open("rb"))
            headers = {**headers, "Content-Length": str(content.stat().st_size)}
        request = Request(url, data, dict(headers), method=method)  # noqa: S310 see Place
        if self._authorization:
            request.add_unredirected_header("Authorization", self._authorization)
        answer: HTTPResponse = stack.enter_context(self._opener().open(request, timeout=timeout))
        return answer

    def _log_in(self, refused: HTTPError, action: str) -> str:
        """What is to be sent with the next request, and those after it."""
        mine = registry_login.basic(self._credentials, str(self.place))
        secure, scope = self.place.url.startswith("https:"), f"repository:{self.place.repository}:{action}"
        for challenge in refused.headers.get_all("WWW-Authenticate") or []:
            where = registry_login.token_address(challenge, secure, scope)
            if where is None:
                continue
            request = Request(where)  # noqa: S310 see token_address
            if mine:
                request.add_unredirected_header("Authorization", mine)
            with self._opener().open(request, timeout=PATIENCE_SECONDS) as answer:
                return registry_login.issued(answer.read(_MOST_TOKEN_BYTES))
        if not mine:
            raise refused
        return mine

    def _opener(self) -> OpenerDirector:
        handlers = [_Redirects(), *([ProxyHandler({})] if self.place.is_here else [])]
        return build_opener(*handlers)


class _Redirects(HTTPRedirectHandler):
    """Never from https to anything else."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        allowed = ("https",) if req.type == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise URLError("the registry leads to an address that is not safe")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
