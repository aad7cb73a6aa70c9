"""Clocks jump: that of a server does nothing, that of the database holds back what cannot be undone."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gpuaas.control.store import clocks
from gpuaas.control.store.transaction import Store, connect
from gpuaas.kit.clock import SteadyClock, SystemClock

JUMPS = [timedelta(hours=1), timedelta(hours=-1), timedelta(days=1), timedelta(days=-1)]


@dataclass
class Jumpy:
    """The clock of a server whose wall time somebody sets."""

    off: timedelta = timedelta()
    ahead: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + self.off

    def boottime(self) -> float:
        return SystemClock().boottime() + self.ahead


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_a_server_whose_clock_jumps_does_not_notice(database_url: str, jump: timedelta) -> None:
    engine, source = connect(database_url, pool_size=1), Jumpy()
    store = Store(engine, clocks.steady(engine, source))
    before = store.transact(lambda tx: tx.now)
    source.off = jump
    after = store.transact(lambda tx: tx.now)
    assert timedelta() <= after - before < timedelta(seconds=30)
    assert clocks.compare(store)
    engine.dispose()


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_a_server_that_starts_with_a_wrong_clock_has_the_databases(database_url: str, jump: timedelta) -> None:
    engine = connect(database_url, pool_size=1)
    store = Store(engine, clocks.steady(engine, Jumpy(jump)))
    assert abs(store.transact(lambda tx: tx.now) - datetime.now(UTC)) < timedelta(seconds=30)
    engine.dispose()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 86400.0, -86400.0])
def test_a_database_whose_clock_jumps_is_noticed_until_it_is_right_again(database_url: str, seconds: float) -> None:
    """Its clock cannot be set here; that more or fewer of our seconds passed than of its own is the same."""
    engine, source = connect(database_url, pool_size=1), Jumpy()
    store = Store(engine, clocks.steady(engine, source))
    assert clocks.compare(store)
    source.ahead = seconds
    assert not clocks.compare(store)
    assert not store.clock_agrees
    source.ahead = 0.0
    assert clocks.compare(store)
    assert store.clock_agrees
    engine.dispose()


def test_steady_time_catches_up_and_never_goes_back() -> None:
    source = Jumpy()
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    clock = SteadyClock(noon, source)
    source.ahead = 100.0
    assert clock.now() - noon >= timedelta(seconds=100)
    clock.catch_up(noon)
    assert clock.now() - noon >= timedelta(seconds=100)
    clock.catch_up(noon + timedelta(seconds=200))
    assert clock.now() - noon >= timedelta(seconds=200)
