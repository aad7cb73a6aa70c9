from datetime import UTC, datetime, timedelta

from gpuaas.kit.clock import Clock, SystemClock, VirtualClock


def test_the_system_clock_is_utc_and_its_boottime_never_goes_back() -> None:
    clock: Clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    before = clock.boottime()
    assert clock.boottime() >= before


def test_the_virtual_clock_moves_only_when_told_and_both_times_together() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)
    clock = VirtualClock(start)
    boottime = clock.boottime()
    assert clock.now() == clock.now() == start
    clock.advance(1.5)
    assert clock.now() - start == timedelta(seconds=1.5)
    assert clock.boottime() - boottime == 1.5
