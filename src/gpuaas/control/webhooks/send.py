"""One attempt: a signed POST. Whatever the target does, it ends in time, follows nothing, and reads little."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from functools import cache

import httpcore

from gpuaas import __version__
from gpuaas.control.store.deliveries import Attempt
from gpuaas.control.webhooks.address import Network, Refused
from gpuaas.control.webhooks.body import encoded, event_id
from gpuaas.control.webhooks.checked import Checked
from gpuaas.model.webhook import Outcome
from gpuaas.wire import signature

ATTEMPT_SECONDS = 10.0
CONNECT_SECONDS = 5.0
EXCERPT_BYTES = 300  # of an answer that is not 2xx, for the delivery log


async def send(
    attempt: Attempt, timestamp: int, allowed: Sequence[Network], within_seconds: float = ATTEMPT_SECONDS
) -> Outcome:
    started = time.monotonic()
    status: int | None = None
    try:
        async with asyncio.timeout(within_seconds):
            status, error = await _post(attempt, timestamp, allowed)
    except TimeoutError:
        error = f"no answer within {within_seconds:g} seconds"
    except Refused as refused:
        error = str(refused)
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, ssl.SSLError, OSError) as lost:
        error = f"{type(lost).__name__}: {lost}".strip(": ")
    except (httpcore.UnsupportedProtocol, ValueError) as unusable:
        error = f"the address cannot be used: {unusable}"
    return Outcome(status, _printable(error), round((time.monotonic() - started) * 1000))


async def _post(attempt: Attempt, timestamp: int, allowed: Sequence[Network]) -> tuple[int | None, str]:
    if attempt.event is None:
        return None, "the event is no longer kept"
    if not attempt.secrets:
        return None, "its secret cannot be read with this server's --secrets-key-file; use the right one, or rotate it"
    body = encoded(attempt.event)
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "User-Agent": f"gpuaas-webhook/{__version__}",
        signature.EVENT_ID: event_id(attempt.event),
        signature.EVENT_TYPE: attempt.event.type,
        signature.DELIVERY: attempt.delivery_id,
        signature.ATTEMPT: str(attempt.number),
        signature.TIMESTAMP: str(timestamp),
        signature.SIGNATURE: signature.signature(attempt.secrets, timestamp, body),
    }
    async with (
        # A pool of its own for one request: nothing is shared between targets, and nothing is left open.
        httpcore.AsyncConnectionPool(
            ssl_context=_tls(), max_keepalive_connections=0, network_backend=Checked(allowed)
        ) as pool,
        pool.stream(
            "POST",
            attempt.url,
            headers=_with_host(attempt.url, headers),
            content=body,
            extensions={"timeout": {"connect": CONNECT_SECONDS}},
        ) as answer,
    ):
        if 200 <= answer.status < 300:
            return answer.status, ""
        if 300 <= answer.status < 400:
            return answer.status, f"it answered {answer.status}: redirects are not followed"
        return answer.status, f"it answered {answer.status}: {await _excerpt(answer)}".strip(": ")


async def _excerpt(answer: httpcore.Response) -> str:
    seen = b""
    async for chunk in answer.aiter_stream():
        seen += chunk
        if len(seen) >= EXCERPT_BYTES:
            break
    return seen[:EXCERPT_BYTES].decode("utf-8", "replace")


def _with_host(url: str, headers: dict[str, str]) -> list[tuple[bytes | str, bytes | str]]:
    parts = httpcore.URL(url)
    usual = parts.port in (None, 443 if parts.scheme == b"https" else 80)
    host = parts.host.decode("ascii")
    host = f"[{host}]" if ":" in host else host
    return [("Host", host if usual else f"{host}:{parts.port}"), *headers.items()]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:500]


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
