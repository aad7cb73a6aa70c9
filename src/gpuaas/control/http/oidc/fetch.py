"""Requests to the identity provider: short, bounded, without redirects, and over TLS unless it is on this machine."""

import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem

SECONDS = 5.0  # of silence
LONGEST_SECONDS = 15.0
MOST_BYTES = 512 * 1024
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def fetch(method: str, url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> tuple[int, Any]:
    """The status and the JSON of the answer."""
    import httpcore  # most servers never ask a provider

    if not trustworthy(url):
        raise unavailable(f"{url} is neither https nor on this machine")
    clock = SystemClock()
    deadline = clock.boottime() + LONGEST_SECONDS
    timeout = dict.fromkeys(("connect", "read", "write", "pool"), SECONDS)
    usual: dict[bytes | str, bytes | str] = {"Host": urlsplit(url).netloc, "Accept": "application/json"}
    usual.update({**(headers or {})})
    content = bytearray()
    try:
        with (
            httpcore.ConnectionPool(ssl_context=ssl.create_default_context()) as pool,
            pool.stream(method, url, headers=usual, content=body, extensions={"timeout": timeout}) as answer,
        ):
            for chunk in answer.iter_stream():
                content += chunk
                if len(content) > MOST_BYTES or clock.boottime() > deadline:
                    raise unavailable(f"{url} does not come to an end")
            return answer.status, json.loads(bytes(content))
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError, ValueError) as error:
        raise unavailable(f"{method} {url}: {type(error).__name__} {error}") from error


def trustworthy(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


def unavailable(detail: str) -> Problem:
    return Problem(
        "provider_unavailable",
        503,
        "The identity provider did not answer as it should.",
        "Try again in a moment; if it stays like this, tell your operator.",
        detail=detail,
        extra={"retry_after": 5},
    )
