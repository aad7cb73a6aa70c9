"""A day of a machine: every sample for an hour, one a minute for a day, then nothing; and only so much work at once."""

from collections import Counter
from datetime import timedelta

import pytest

from control.cluster import Cluster
from control.fleet import sample
from gpuaas.control.store import samples
from gpuaas.control.sweeps import old_samples
from gpuaas.kit.clock import VirtualClock

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def machine(cluster: Cluster) -> str:
    cluster.store.clock = VirtualClock()
    cluster.agent(gpus=1).settle()
    return cluster.launch()


def fill(cluster: Cluster, id: str, hours: float) -> None:
    """As the link would have written them, every ten seconds up to now."""
    modest = sample(id, 0)
    values = {name: getattr(modest, name) for name in modest.__struct_fields__ if name not in ("id", "at")}
    now, count = cluster.store.clock.now(), int(hours * 360)
    rows = [
        {**values, "allocation_id": id, "at": now - timedelta(seconds=10 * n), "first_of_minute": n % 6 == 0}
        for n in range(count)
    ]
    cluster.store.transact(samples.insert_samples, rows)


def ages(cluster: Cluster, id: str) -> list[timedelta]:
    now = cluster.store.clock.now()
    return [now - found.at for found in cluster.store.transact(samples.since, id, now - 100 * HOUR)]


def test_raw_for_an_hour_then_one_a_minute_for_a_day(cluster: Cluster, machine: str) -> None:
    fill(cluster, machine, hours=26)
    old_samples.sweep(cluster.store)
    found = ages(cluster, machine)
    assert max(found) <= 24 * HOUR
    assert sum(1 for age in found if age <= HOUR) == 361
    assert set(Counter(age // MINUTE for age in found if age > HOUR).values()) == {1}
    assert len(found) == 361 + 23 * 60
    assert old_samples.sweep(cluster.store) == 0


def test_nothing_is_deleted_early_and_everything_in_the_end(cluster: Cluster, machine: str) -> None:
    fill(cluster, machine, hours=1)
    assert old_samples.sweep(cluster.store) == 0
    assert isinstance(cluster.store.clock, VirtualClock)
    cluster.store.clock.advance(2 * 3600)
    assert old_samples.sweep(cluster.store) == 300
    cluster.store.clock.advance(24 * 3600)
    assert old_samples.sweep(cluster.store) == 60
    assert ages(cluster, machine) == []


def test_a_run_has_a_limit(cluster: Cluster, machine: str) -> None:
    fill(cluster, machine, hours=3)
    assert cluster.store.transact(samples.thin, 50) == 50
    assert cluster.store.transact(samples.forget, 50) == 0
