"""Samples of a node: whose they are, when they were, and what is dropped."""

import pytest

from control.cluster import Cluster
from control.fleet import Agent, sample
from gpuaas.control.store import samples
from gpuaas.kit.clock import VirtualClock
from gpuaas.model.sample import Sample
from gpuaas.wire.node import Fenced, GpuSample


@pytest.fixture
def clock(cluster: Cluster) -> VirtualClock:
    cluster.store.clock = VirtualClock(cluster.store.clock.now())
    return cluster.store.clock


@pytest.fixture
def machine(cluster: Cluster, clock: VirtualClock) -> tuple[Agent, str]:
    agent = cluster.agent(gpus=1)
    id = cluster.launch()
    agent.settle()
    return agent, id


def kept(cluster: Cluster, id: str) -> list[Sample]:
    return cluster.store.transact(lambda tx: samples.since(tx, id, tx.now.replace(year=2000)))


def test_a_sample_is_kept_as_it_was_said(cluster: Cluster, clock: VirtualClock, machine: tuple[Agent, str]) -> None:
    agent, id = machine
    now = clock.now().timestamp()
    gpu = GpuSample("GPU-node-1-0", busy_percent=50.0, memory_mib=81920, trouble="XID 79")
    events = cluster.sql("SELECT count(*) FROM events")
    assert agent.sample(sample(id, now - 3, cpu_seconds=7.5, disk_used_bytes=5, gpus=[gpu])) == []
    (found,) = kept(cluster, id)
    assert (found.at.timestamp(), found.cpu_seconds, found.disk_used_bytes) == (now - 3, 7.5, 5)
    assert (found.disk_limit_bytes, found.gpus[0].busy_percent, found.gpus[0].trouble) == (None, 50.0, "XID 79")
    assert cluster.sql("SELECT count(*) FROM events") == events


@pytest.mark.parametrize(("said", "believed"), [(-59, -59), (-61, 0), (0, 0), (0.5, 0), (9e9, 0), (-1e9, 0)])
def test_a_clock_that_is_off_is_not_believed(
    cluster: Cluster, clock: VirtualClock, machine: tuple[Agent, str], said: float, believed: float
) -> None:
    agent, id = machine
    now = clock.now().timestamp()
    agent.sample(sample(id, now + said))
    assert kept(cluster, id)[0].at.timestamp() == pytest.approx(now + believed)


def test_only_machines_of_that_node_count(cluster: Cluster, clock: VirtualClock, machine: tuple[Agent, str]) -> None:
    agent, id = machine
    other = cluster.agent("node-2", gpus=1)
    now = clock.now().timestamp()
    other.sample(sample(id, now), sample("al-" + "a" * 16, now))
    assert kept(cluster, id) == []
    cluster.release(id)
    agent.settle()
    agent.sample(sample(id, now))
    assert kept(cluster, id) == []


def test_twice_late_or_too_often_is_dropped(cluster: Cluster, clock: VirtualClock, machine: tuple[Agent, str]) -> None:
    agent, id = machine
    now = clock.now().timestamp()
    agent.sample(sample(id, now - 10), sample(id, now - 10), sample(id, now - 9.5))
    agent.sample(sample(id, now - 10))
    agent.sample(sample(id, now - 30))
    agent.sample(sample(id, now))
    assert [found.at.timestamp() for found in kept(cluster, id)] == [now - 10, now]


def test_an_older_connection_is_fenced(cluster: Cluster, clock: VirtualClock, machine: tuple[Agent, str]) -> None:
    agent, id = machine
    before = agent.session
    agent.connect()
    agent.session = before
    (answer,) = agent.sample(sample(id, clock.now().timestamp()))
    assert isinstance(answer, Fenced)
    assert kept(cluster, id) == []
