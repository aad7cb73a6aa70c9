"""Buckets and the pace of guessing, with a clock that is moved by hand."""

from collections.abc import Callable

import pytest

from gpuaas.control.config import Rates
from gpuaas.control.http.limits import Buckets, Limiter, network
from gpuaas.control.http.pace import FREE, UNDER_ATTACK, Pace
from gpuaas.kit.clock import VirtualClock
from gpuaas.kit.errors import Problem

RATES = Rates(token=10, address=1, login=1, node=5)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def refused(clock: VirtualClock, limiter: Limiter, secret: str = "", address: str = "192.0.2.1") -> int:
    """How many go through before one does not, and that it says when to come back."""
    admitted, problem = _until_refused(lambda: limiter.admit(address, secret))
    assert (problem.status, problem.code) == (429, "too_many_requests")
    assert problem.extra["retry_after"] >= 1
    assert problem.hint
    return admitted


def _until_refused(ask: Callable[[], None]) -> tuple[int, Problem]:
    for number in range(10_000):
        try:
            ask()
        except Problem as problem:
            return number, problem
    raise AssertionError("nobody was refused")


def test_ten_seconds_worth_at_once_and_then_as_it_refills(clock: VirtualClock) -> None:
    buckets = Buckets(clock, 2.0)
    assert [buckets.take("a") for _ in range(20)] == [0.0] * 20
    assert buckets.take("a") == 0.5
    assert buckets.take("b") == 0.0, "others are not concerned"
    clock.advance(0.5)
    assert buckets.take("a") == 0.0
    clock.advance(1e6)
    assert sum(buckets.take("a") == 0.0 for _ in range(100)) == 20


def test_memory_is_bounded(clock: VirtualClock) -> None:
    buckets = Buckets(clock, 1.0, most=100)
    for number in range(10_000):
        buckets.take(str(number))
    assert "9999" in buckets
    assert "9899" not in buckets


def test_a_valid_token_counts_for_itself_and_others_for_their_address(clock: VirtualClock) -> None:
    limiter = Limiter(clock, RATES)
    limiter.admit("192.0.2.1", "gpt_good")
    limiter.vouch("192.0.2.1", "gpt_good")
    assert refused(clock, limiter) == 10, "the address was given back what the valid token took"
    assert refused(clock, limiter, "gpt_good") == 99
    assert refused(clock, limiter, "gpt_guess-1") == 0
    assert refused(clock, limiter, "gpt_guess-2") == 0, "another guess is the same guesser"
    assert refused(clock, limiter, "gpt_guess-3", "192.0.2.2") == 10
    clock.advance(100)
    limiter.doubt("gpt_good")  # revoked
    assert refused(clock, limiter, "gpt_good") == 10


def test_one_house_with_many_addresses(clock: VirtualClock) -> None:
    limiter = Limiter(clock, RATES)
    for number in range(10):
        limiter.admit(f"2001:db8::{number:x}", "")
    assert refused(clock, limiter, address="2001:db8::ffff:1") == 0
    assert refused(clock, limiter, address="2001:db8:0:1::1") == 10
    assert network("::ffff:192.0.2.1") == "192.0.2.1"
    assert network("fe80::1%eth0") == "fe80::/64"
    assert network("") == ""


def test_zero_is_any_number(clock: VirtualClock) -> None:
    limiter = Limiter(clock, Rates(0, 0, 0, 0))
    for _ in range(1000):
        limiter.admit("192.0.2.1", "")
        limiter.admit_login("192.0.2.1")


def test_any_number_with_a_token_is_not_counted_for_the_address(clock: VirtualClock) -> None:
    limiter = Limiter(clock, Rates(token=0, address=1))
    for _ in range(1000):
        limiter.admit("192.0.2.1", "gpt_good")
        limiter.vouch("192.0.2.1", "gpt_good")
    assert refused(clock, limiter) == 10


def tries(pace: Pace, account: str, address: str) -> int:
    """How many wrong ones in a row before one has to wait."""
    made, problem = _until_refused(lambda: pace.attempt(account, address))
    assert problem.status == 429
    return made


def test_wrong_passwords_are_slower_each_time(clock: VirtualClock) -> None:
    pace = Pace(clock)
    assert tries(pace, "ada@example.org", "192.0.2.1") == FREE
    waits = []
    for _ in range(12):
        with pytest.raises(Problem) as found:
            pace.attempt("ADA@example.org", "192.0.2.1")
        waits.append(found.value.extra["retry_after"])
        clock.advance(waits[-1])
        pace.attempt("ada@example.org", "192.0.2.1")
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert max(waits) == 300
    clock.advance(3601)
    assert tries(pace, "ada@example.org", "192.0.2.1") == FREE


def test_the_owner_gets_in_whatever_others_do(clock: VirtualClock) -> None:
    pace = Pace(clock)
    for number in range(UNDER_ATTACK):
        assert tries(pace, "ada@example.org", f"198.51.{number}.1") >= 1
    pace.attempt("ada@example.org", "192.0.2.1")
    pace.right("ada@example.org", "192.0.2.1")
    pace.attempt("ada@example.org", "192.0.2.1")
    pace.right("ada@example.org", "192.0.2.1")
    assert tries(pace, "ada@example.org", "203.0.113.9") == 1, "while many guess, an address has one try"
    assert tries(pace, "bob@example.org", "203.0.113.9") == FREE


def test_who_knows_the_password_is_not_counted(clock: VirtualClock) -> None:
    pace = Pace(clock)
    for _ in range(100):
        pace.attempt("ada@example.org", "192.0.2.1")
        pace.right("ada@example.org", "192.0.2.1")
    assert tries(pace, "ada@example.org", "192.0.2.1") == FREE
