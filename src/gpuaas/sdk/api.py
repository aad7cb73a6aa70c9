"""Typed calls over the transport: names into paths, structs into bodies, bytes into the types of wire/api."""

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from gpuaas.sdk.errors import ApiError
from gpuaas.sdk.transport import Answer, Query, Transport
from gpuaas.wire.api import In

PREFIX = "/api/v1"
PAGE_SIZE = 200

T = TypeVar("T")


class Page(Protocol[T]):
    """What every list answers."""

    @property
    def items(self) -> list[T]: ...

    @property
    def next_cursor(self) -> str | None: ...


class Api:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def get(self, path: str, as_: type[T], query: Query | None = None) -> T:
        return _decoded(self.transport.call("GET", path, query=query), as_)

    def post(
        self,
        path: str,
        body: In | None,
        as_: type[T],
        idempotency_key: str | None = None,
        read_seconds: float | None = None,
    ) -> T:
        encoded = None if body is None else msgspec.json.encode(body)
        call = self.transport.call
        return _decoded(
            call("POST", path, body=encoded, idempotency_key=idempotency_key, read_seconds=read_seconds), as_
        )

    def act(self, path: str) -> None:
        """A POST that says nothing and is answered by nothing."""
        self.transport.call("POST", path)

    def put(self, path: str, body: In, as_: type[T], idempotency_key: str | None = None) -> T:
        encoded = msgspec.json.encode(body)
        return _decoded(self.transport.call("PUT", path, body=encoded, idempotency_key=idempotency_key), as_)

    def put_bytes(self, path: str, data: bytes, as_: type[T], said: Mapping[str, str]) -> T:
        """What is no JSON; `said` are headers that tell which part of it this is."""
        headers = {"Content-Type": "application/octet-stream", **said}
        return _decoded(self.transport.call("PUT", path, body=data, said=headers), as_)

    def delete(self, path: str) -> None:
        self.transport.call("DELETE", path)

    def delete_for(self, path: str, as_: type[T]) -> T:
        """Where the answer says what was ended."""
        return _decoded(self.transport.call("DELETE", path), as_)

    def pages(self, path: str, as_: type[Page[T]], query: Query | None = None) -> Iterator[T]:
        """Every item of every page; the next page is asked for when its first item is."""
        cursor: str | None = None
        while True:
            page = self.get(path, as_, {"limit": PAGE_SIZE, **(query or {}), "cursor": cursor})
            yield from page.items
            if page.next_cursor is None or page.next_cursor == cursor:
                return
            cursor = page.next_cursor


def path(*segments: str) -> str:
    """Below the API's prefix; a name can never become another route."""
    for segment in segments:
        if segment.strip() in ("", ".", ".."):
            raise ApiError("bad_name", 422, f"{segment!r} is not a name.", "Give the object's id or name.")
    return "/".join((PREFIX, *(quote(segment, safe="") for segment in segments)))


def _decoded(answer: Answer, as_: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=as_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(
            "unreadable_answer",
            answer.status,
            f"The server's answer is not what this client knows: {error}.",
            "Check the server's address, and that client and server have the same version.",
            answer.headers.get("X-Correlation-ID", ""),
        ) from error
