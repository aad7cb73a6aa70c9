"""The only code that talks HTTP. A call is one logical request: its retries carry the same Idempotency-Key.

Tried again: lost connections, 503 and 429 that say when, and 409 `in_progress` (the first try is still being worked
on). All other answers are final.
"""

import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from gpuaas.sdk.errors import ApiError, GpuaasError, Unreachable, from_answer
from gpuaas.sdk.retry import Retry, asked_seconds

Query = Mapping[str, str | int | bool | None]

_MUTATIONS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    def __init__(
        self,
        server: str,
        token: str | None,
        *,
        timeout_seconds: float,
        retry: Retry,
        user_agent: str,
        correlation_id: str = "",
    ) -> None:
        self.server = checked_address(server)
        self.retry = retry
        self._token = token
        parts = urlsplit(self.server)
        self._http = httpx.Client(
            base_url=self.server,
            headers={"User-Agent": user_agent, "Accept": "application/json", **_correlated(correlation_id)},
            timeout=httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, 10.0)),
            # Certificates take 0.2 s to load, and the machine's own are the ones that curl and apt trust.
            verify=ssl.create_default_context() if parts.scheme == "https" else False,
            trust_env=parts.hostname not in LOOPBACK,  # a proxy has no way to this machine's own ports
        )

    def close(self) -> None:
        self._http.close()

    def use_token(self, token: str | None) -> None:
        self._token = token

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        idempotency_key: str | None = None,
        said: Mapping[str, str] | None = None,
        read_seconds: float | None = None,
    ) -> Answer:
        """`said`: headers of this call. `read_seconds`: for what takes the server longer than most."""
        headers = self.authorization()
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers |= said or {}
        if method in _MUTATIONS:
            headers["Idempotency-Key"] = idempotency_key or uuid.uuid4().hex
        failures = 0
        while True:
            outcome = self._once(method, path, query, body, headers, read_seconds)
            if isinstance(outcome, Answer) and outcome.status < 300:
                return outcome
            failures += 1
            pause = self._pause(outcome, failures)
            if pause is None:
                raise outcome if isinstance(outcome, GpuaasError) else _refusal(outcome)
            self.retry.sleep(pause)

    @contextmanager
    def stream(
        self, path: str, *, query: Query | None, headers: Mapping[str, str], read_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        """The bytes of one answer as they come. A silence of `read_seconds` counts as a lost connection."""
        timeout = httpx.Timeout(10.0, read=read_seconds)
        wanted = {**self.authorization(), "Accept": "text/event-stream", **headers}
        try:
            with self._http.stream("GET", path, params=_params(query), headers=wanted, timeout=timeout) as response:
                if response.status_code != 200:
                    raise _refusal(Answer(response.status_code, response.headers, response.read()))
                yield response.iter_bytes()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _once(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        headers: Mapping[str, str],
        read_seconds: float | None,
    ) -> Answer | Unreachable:
        waits = self._http.timeout if read_seconds is None else httpx.Timeout(10.0, read=read_seconds)
        asked = _params(query)
        try:
            response = self._http.request(method, path, params=asked, content=body, headers=headers, timeout=waits)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return self._lost(error)
        return Answer(response.status_code, response.headers, response.content)

    def _pause(self, outcome: Answer | Unreachable, failures: int) -> float | None:
        """How long to wait before the next try; None: this was the last one."""
        if failures >= self.retry.attempts:
            return None
        if isinstance(outcome, Unreachable):
            return self.retry.pause_seconds(failures)
        asked = asked_seconds(outcome.headers.get("Retry-After"))
        if outcome.status == 409 and _refusal(outcome).code == "in_progress":
            return max(asked or 0.0, self.retry.pause_seconds(failures))
        if outcome.status in (429, 503) and asked is not None and asked <= self.retry.longest_asked_seconds:
            return asked + self.retry.pause_seconds(failures)
        return None

    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _lost(self, error: Exception) -> Unreachable:
        return Unreachable(self.server, str(error) or type(error).__name__)


def _correlated(correlation_id: str) -> dict[str, str]:
    return {"X-Correlation-ID": correlation_id} if correlation_id else {}


def checked_address(server: str) -> str:
    """The address without a slash at its end, or an error that says what an address looks like."""
    parts = urlsplit(server.strip())
    try:
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number
        fits = False
    if not fits or parts.username or parts.query or parts.fragment:
        raise ApiError(
            "bad_address", 400, f"{server!r} is not a server's address.", "It looks like https://gpu.example.org."
        )
    return server.strip().rstrip("/")


def _refusal(answer: Answer) -> ApiError:
    return from_answer(answer.status, answer.body, answer.headers.get("X-Correlation-ID", ""))


def _params(query: Query | None) -> dict[str, str] | None:
    """Without what was left out; true and false as JSON has them."""
    if query is None:
        return None
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
