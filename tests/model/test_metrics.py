"""Rates and steps, by hand-made samples."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpuaas.model.metrics import Point, newest, points
from gpuaas.model.sample import GpuUse, Sample

START = datetime(2030, 1, 1, tzinfo=UTC)
MODEST = Sample(
    *("al-x", START, 1.0, 0.0, 4.0, 100, 1000, 3, 0, 0),
    *(0, 0, None, None, 0, 0, ()),
)


def at(seconds: float, **more: object) -> Sample:
    return replace(MODEST, at=START + timedelta(seconds=seconds), **more)


def test_a_rate_is_what_grew_by_the_time_it_took() -> None:
    samples = [
        at(0, cpu_seconds=10.0, disk_read_bytes=0, network_sent_bytes=500),
        at(10, cpu_seconds=30.0, disk_read_bytes=1000, network_sent_bytes=500),
    ]
    first, second = points(samples, START, 10)
    assert (first.cpus_used, first.cpu_percent, first.network_sent_bytes_per_second) == (None, None, None)
    assert (second.cpus_used, second.cpu_percent) == (2.0, 50.0)
    assert (second.disk_read_bytes_per_second, second.network_sent_bytes_per_second) == (100.0, 0.0)
    assert second.at == START + timedelta(seconds=10)


def test_what_was_before_the_beginning_only_starts_the_first_rate() -> None:
    (only,) = points([at(-10, cpu_seconds=0.0), at(0, cpu_seconds=10.0)], START, 10)
    assert (only.at, only.cpus_used) == (START, 1.0)


def test_a_restart_begins_the_totals_again() -> None:
    samples = [
        at(0, cpu_seconds=1000.0),
        at(10, cpu_seconds=1010.0),
        at(20, cpu_seconds=5.0, started_at=2.0),
        at(30, cpu_seconds=25.0, started_at=2.0),
    ]
    assert [point.cpus_used for point in points(samples, START, 10)] == [None, 1.0, None, 2.0]
    (all_in_one,) = points(samples, START, 60)
    assert all_in_one.cpus_used == 1.5, "the span over the restart counts neither in use nor in time"


def test_a_total_that_shrinks_without_a_restart_counts_as_nothing() -> None:
    _, second = points([at(0, network_sent_bytes=900), at(10, network_sent_bytes=100)], START, 10)
    assert second.network_sent_bytes_per_second == 0.0


@pytest.mark.parametrize(("apart", "rate"), [(60, 1.0), (180, 1.0), (181, None), (3600, None)])
def test_a_gap_has_no_rate(apart: int, rate: float | None) -> None:
    found = newest([at(0), at(apart, cpu_seconds=float(apart))])
    assert found is not None
    assert found.cpus_used == rate


def test_a_step_averages_rates_and_keeps_peaks() -> None:
    def gpu(busy: float | None, memory: int, trouble: str = "") -> tuple[GpuUse, ...]:
        return (GpuUse("GPU-1", busy, memory, 80, 40.0 + memory, None, trouble),)

    samples = [
        at(0, memory_bytes=900, sessions=2, gpus=gpu(10.0, 30)),
        at(10, cpu_seconds=10.0, memory_bytes=100, gpus=gpu(None, 50, "XID 79")),
        at(20, cpu_seconds=40.0, memory_bytes=200, disk_used_bytes=7, oom_kills=1, gpus=gpu(20.0, 10)),
    ]
    (point,) = points(samples, START, 60)
    assert (point.cpus_used, point.memory_bytes, point.sessions, point.oom_kills) == (2.0, 900, 2, 1)
    assert point.disk_used_bytes == 7
    assert point.gpus == (GpuUse("GPU-1", 15.0, 50, 80, 90.0, None, "XID 79"),)


def test_a_thinned_hour_gives_the_same_rate_as_the_raw_one() -> None:
    raw = [at(10 * n, cpu_seconds=12.0 * n) for n in range(361)]

    def rates(found: list[Point]) -> set[float | None]:
        return {point.cpus_used for point in found[1:]}

    assert rates(points(raw, START, 300)) == rates(points(raw[::6], START, 300)) == {1.2}


def test_steps_without_samples_are_left_out() -> None:
    found = points([at(0), at(100)], START, 10)
    assert [point.at for point in found] == [START, START + timedelta(seconds=100)]
    assert newest([]) is None
