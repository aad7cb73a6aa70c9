"""Time comes in through here, so that a simulation can own it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, UTC."""
        ...

    def boottime(self) -> float:
        """Seconds that also pass while the machine sleeps; what leases are counted on."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Another clock's time, told once and counted on by seconds that pass: no jump of our own clock moves it."""

    def __init__(self, told: datetime, source: Clock | None = None) -> None:
        self._source = source or SystemClock()
        self._told, self._at = told, self._source.boottime()

    def now(self) -> datetime:
        return self._told + timedelta(seconds=self._source.boottime() - self._at)

    def boottime(self) -> float:
        return self._source.boottime()

    def catch_up(self, told: datetime) -> None:
        """Never backwards: who is ahead waits until the other clock is there."""
        if told > self.now():
            self._told, self._at = told, self._source.boottime()


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2030, 1, 1, tzinfo=UTC)
        self._boottime = 1000.0

    def now(self) -> datetime:
        return self._now

    def boottime(self) -> float:
        return self._boottime

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._boottime += seconds
