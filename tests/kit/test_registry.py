"""Registries that ask who is there, and that lead elsewhere. A real one is in tests/runtimes/test_push.py."""

import json
from collections.abc import Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request

import pytest

from gpuaas.kit import registry_login
from gpuaas.kit.errors import Problem
from gpuaas.kit.registry import Place, Registry, _Redirects
from oci import NAME, PASSWORD, credentials, respond, web_server

DATA = b"0123456789" * 100
BLOB = "sha256:" + "a" * 64


class Guarded:
    """A registry whose blobs lie in a store of somebody else, and whose doors a token service opens."""

    def __init__(self) -> None:
        self.token, self.issued = "t0k3n", b""
        self.asked: list[tuple[str, str, str | None]] = []  # who was asked, for what, with which authorization
        self.queries: list[dict[str, list[str]]] = []
        self.ranges: list[str | None] = []
        self.registry = self.tokens = self.store = ""

    def at_registry(self, request: BaseHTTPRequestHandler) -> None:
        said = request.headers["Authorization"]
        self.asked.append(("registry", request.path, said))
        if said != f"Bearer {self.token}":
            challenge = f'Bearer realm="http://{self.tokens}/token",service="the registry"'
            respond(request, 401, WWW_Authenticate=challenge)
        else:
            respond(request, 307, Location=f"http://{self.store}/signed?key=1")

    def at_tokens(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(("tokens", urlsplit(request.path).path, request.headers["Authorization"]))
        self.queries.append(parse_qs(urlsplit(request.path).query))
        respond(request, 200, self.issued or json.dumps({"token": self.token}).encode())

    def at_store(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(("store", request.path, request.headers["Authorization"]))
        self.ranges.append(request.headers["Range"])
        first = int((request.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        respond(request, 206, DATA[first:], Content_Range=f"bytes {first}-{len(DATA) - 1}/{len(DATA)}")


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    with (
        web_server(made.at_registry) as made.registry,
        web_server(made.at_tokens) as made.tokens,
        web_server(made.at_store) as made.store,
    ):
        yield made


@pytest.mark.parametrize(
    ("text", "url", "repository"),
    [
        ("registry.example/team/runtimes", "https://registry.example", "team/runtimes"),
        ("registry.example:5000/runtimes/", "https://registry.example:5000", "runtimes"),
        ("http://registry.example/a-b/c__d", "http://registry.example", "a-b/c__d"),
        ("localhost:5000/runtimes", "http://localhost:5000", "runtimes"),
        ("127.0.0.1/runtimes", "http://127.0.0.1", "runtimes"),
        ("[::1]:5000/runtimes", "http://[::1]:5000", "runtimes"),
        ("https://127.0.0.1:5000/runtimes", "https://127.0.0.1:5000", "runtimes"),
    ],
)
def test_where_a_registry_is(text: str, url: str, repository: str) -> None:
    assert Place.parse(text) == Place(url, repository)


@pytest.mark.parametrize(
    "text",
    ["", "registry.example", "https://registry.example/", "ftp://registry.example/a", "ada:sesame@registry.example/a",
     "https://ada:sesame@registry.example/a", "registry.example/Upper", "registry.example/a?b", "registry.example/a#b",
     "registry.example/../a", "registry.example:port/a", "//a", "registry.example/a b"],
)  # fmt: skip
def test_what_names_no_registry_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(Problem) as refused:
        Place.parse(text)
    assert "sesame" not in f"{refused.value.message} {refused.value.hint}"


def test_a_token_is_got_with_the_credentials_and_only_the_token_service_sees_them(
    guarded: Guarded, tmp_path: Path
) -> None:
    registry = Registry(Place.parse(f"{guarded.registry}/team"), credentials(tmp_path / "c", guarded.registry))
    with registry.blob(BLOB, 10) as answer:
        assert (answer.status, answer.read()) == (206, DATA[10:])
    with registry.blob(BLOB) as answer:
        assert answer.read() == DATA
    basic, bearer, path = (
        registry_login.basic(tmp_path / "c", guarded.registry),
        "Bearer t0k3n",
        f"/v2/team/blobs/{BLOB}",
    )
    assert guarded.asked == [
        ("registry", path, None),
        ("tokens", "/token", basic),
        ("registry", path, bearer),
        ("store", "/signed?key=1", None),
        ("registry", path, bearer),
        ("store", "/signed?key=1", None),
    ]
    assert guarded.ranges == ["bytes=10-", None]
    assert guarded.queries == [{"service": ["the registry"], "scope": ["repository:team:pull"]}]


def test_a_token_for_anybody_and_one_that_has_run_out(guarded: Guarded) -> None:
    registry = Registry(Place.parse(f"{guarded.registry}/team"))
    for token in ("first", "second"):
        guarded.token, guarded.issued = token, json.dumps({"access_token": token}).encode()
        with registry.blob(BLOB) as answer:
            assert answer.read() == DATA
    assert [said for who, _, said in guarded.asked if who == "tokens"] == [None, None]


@pytest.mark.parametrize("issued", [b"no", b"[]", b"{}", b'{"token": "a\\nb"}', b'{"token": 7}', b"x" * 200_000])
def test_a_token_service_that_issues_none(guarded: Guarded, issued: bytes) -> None:
    guarded.issued = issued
    with pytest.raises(Problem, match="no token"), Registry(Place.parse(f"{guarded.registry}/team")).blob(BLOB):
        pass


def test_a_token_that_does_not_help_is_not_asked_for_again(guarded: Guarded) -> None:
    guarded.issued = b'{"token": "another"}'
    with pytest.raises(HTTPError), Registry(Place.parse(f"{guarded.registry}/team")).blob(BLOB):
        pass
    assert [who for who, _, _ in guarded.asked] == ["registry", "tokens", "registry"]


@pytest.mark.parametrize(
    ("realm", "secure"),
    [("http://tokens.example", True), ("file:///etc/passwd", False), ("", False), ("https://a:b@tokens.example", True)],
)
def test_a_token_service_that_is_not_safe_is_told_nothing(realm: str, secure: bool) -> None:
    with pytest.raises(Problem, match="no token service"):
        registry_login.token_address(f'Bearer realm="{realm}"', secure, "repository:a:pull")


@pytest.mark.parametrize(
    ("of", "to", "fine"),
    [("https", "https://store.example/a", True), ("https", "http://store.example/a", False),
     ("http", "http://store.example/a", True), ("http", "ftp://store.example/a", False)],
)  # fmt: skip
def test_no_redirect_leads_out_of_https(of: str, to: str, fine: bool) -> None:
    request = Request(f"{of}://registry.example/v2/")  # noqa: S310
    request.add_unredirected_header("Authorization", "Basic x")
    if not fine:
        with pytest.raises(URLError, match="not safe"):
            _Redirects().redirect_request(request, BytesIO(), 307, "", HTTPMessage(), to)
        return
    led = _Redirects().redirect_request(request, BytesIO(), 307, "", HTTPMessage(), to)
    assert led is not None
    assert not led.has_header("Authorization")


def test_a_registry_that_wants_the_bytes_elsewhere_gets_none(tmp_path: Path) -> None:
    def lead(request: BaseHTTPRequestHandler) -> None:
        respond(request, 202, Location="http://store.example/upload")

    with web_server(lead) as address, pytest.raises(Problem, match="another server"):
        Registry(Place.parse(f"{address}/team")).send_blob(BLOB, DATA)


def test_credentials_in_the_forms_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    named = {
        "https://registry.example/": {"username": NAME, "password": PASSWORD},
        "registry.example/team": {"auth": "YTpi"},
    }
    file.write_text(json.dumps({"auths": named}))
    assert registry_login.basic(file, "registry.example/other") == "Basic YnVpbGRlcjpzZWNyZXQ="
    assert registry_login.basic(file, "registry.example/team/runtimes") == "Basic YTpi"
    assert registry_login.basic(file, "elsewhere.example/team") == ""
    assert registry_login.basic(None, "registry.example") == ""


@pytest.mark.parametrize(
    "said", ["sesame", '{"auths": "sesame"}', '{"auths": {"r": {"auth": "sesame!"}}}', '{"auths": {"r": {}}}']
)
def test_credentials_that_cannot_be_used_are_not_repeated(tmp_path: Path, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(said)
    for place in (file, tmp_path / "none"):
        with pytest.raises(Problem) as refused:
            registry_login.basic(place, "r")
        assert refused.value.code == "bad_credentials_file"
        assert "sesame" not in f"{refused.value.message} {refused.value.__cause__}"
