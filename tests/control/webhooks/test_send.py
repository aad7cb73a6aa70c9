"""One attempt at targets that behave badly: it ends in time, follows nothing, reads little, and says what happened."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from control.webhooks.target import Target, answer, endless, target
from gpuaas.control.store.deliveries import Attempt
from gpuaas.control.store.events import Event
from gpuaas.control.webhooks.address import networks
from gpuaas.control.webhooks.send import EXCERPT_BYTES, send
from gpuaas.model.webhook import Outcome

HERE = networks(["127.0.0.0/8"])
AT = datetime(2030, 1, 1, tzinfo=UTC)
EVENT = Event(
    *("pj-aaaaaaaaaaaaaaaa", 7, "og-aaaaaaaaaaaaaaaa", "allocation.active", "allocation", "al-aaaaaaaaaaaaaaaa", "us"),
    *({"name": "train-1"}, AT, "cr-7", None, None, None, None, None),
)


def attempt(url: str, number: int = 1) -> Attempt:
    return Attempt("wd-aaaaaaaaaaaaaaaa", number, url, ("whs_secret",), EVENT)


def tried(there: Target, seconds: float = 5.0, allowed: object = HERE) -> Outcome:
    return asyncio.run(send(attempt(there.url), 1_900_000_000, allowed, seconds))  # type: ignore[arg-type]


def test_what_is_sent() -> None:
    with target() as there:
        assert tried(there) == Outcome(200, "", pytest.approx(0, abs=3000))
    ((headers, body),) = there.requests
    assert headers["Content-Type"] == "application/json"
    assert headers["Gpuaas-Event-Type"] == "allocation.active"
    assert headers["Gpuaas-Delivery"] == "wd-aaaaaaaaaaaaaaaa"
    assert headers["Gpuaas-Attempt"] == "1"
    assert headers["Gpuaas-Timestamp"] == "1900000000"
    assert headers["Host"] == there.url.split("/")[2]
    assert b'"seq":7' in body
    assert headers["Gpuaas-Event-Id"].encode() in body


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_a_target_that_hangs_is_given_up(how: str) -> None:
    with target() as there:
        there.usual = getattr(there, how)
        started = time.monotonic()
        outcome = tried(there, 0.5)
    assert time.monotonic() - started < 3
    assert (outcome.status, outcome.error) == (None, "no answer within 0.5 seconds")
    assert not outcome.delivered


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with target() as elsewhere, target() as there:
        there.usual = answer(status, Location=elsewhere.url)
        outcome = tried(there)
    assert (outcome.status, outcome.error) == (status, f"it answered {status}: redirects are not followed")
    assert not outcome.delivered
    assert elsewhere.requests == []


def test_a_private_target_is_not_touched() -> None:
    with target() as there:
        outcome = tried(there, allowed=())
        assert outcome.error.startswith("127.0.0.1 is not a public address")
        assert there.requests == []


def test_an_endless_answer_is_not_read() -> None:
    with target() as there:
        there.script = [endless(200), endless(500)]
        assert tried(there).delivered
        outcome = tried(there)
    assert (outcome.status, len(outcome.error)) == (500, len("it answered 500: ") + EXCERPT_BYTES)


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
def test_every_other_answer_is_a_failure(status: int) -> None:
    with target() as there:
        there.usual = answer(status)
        outcome = tried(there)
    assert (outcome.status, outcome.error, outcome.delivered) == (status, f"it answered {status}: ok", False)


def test_nobody_listens() -> None:
    with target() as there:
        pass
    outcome = tried(there)
    assert outcome.status is None
    assert "ConnectError" in outcome.error


def test_a_name_that_is_not_there_is_a_failure() -> None:
    outcome = asyncio.run(send(attempt("https://nothing.invalid/x"), 1, HERE))
    assert "nothing.invalid cannot be found" in outcome.error


def test_an_answer_cannot_write_to_a_terminal() -> None:
    def behave(request: object) -> None:
        request.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 12\r\n\r\n\x1b[2J\x00evil\r\n!")  # type: ignore[attr-defined]

    with target() as there:
        there.usual = behave
        outcome = tried(there)
    assert outcome.error.isprintable()
    assert "evil" in outcome.error
