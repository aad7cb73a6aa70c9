"""Quotas are never exceeded, however many ask at once; what waits for one is let in when there is room."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from control.cluster import Cluster
from gpuaas.control.app import quotas
from gpuaas.control.store.transaction import Store, connect
from gpuaas.control.sweeps import queue
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem

CLIENTS = 64


class Later(SystemClock):
    def __init__(self, hours: int) -> None:
        self._hours = hours

    def now(self) -> datetime:
        """In the month that began when the machine did."""
        return super().now() + timedelta(hours=self._hours)


def set_(cluster: Cluster, kind: str, most: int | None, org: bool = False) -> None:
    verb, of = (quotas.set_org, "home") if org else (quotas.set_project, cluster.project.id)
    cluster.store.transact(verb, cluster.caller, of, kind, most)


@pytest.mark.parametrize(("kind", "org"), [("gpus", False), ("gpus", True), ("allocations", False)])
def test_sixty_four_clients_at_quota_minus_one(cluster: Cluster, database_url: str, kind: str, org: bool) -> None:
    cluster.agent(gpus=80)
    for n in range(2):
        cluster.launch(f"before-{n}")
    set_(cluster, kind, 3, org)
    cluster.store.engine.dispose()
    cluster.store = Store(connect(database_url, pool_size=CLIENTS))
    ready = threading.Barrier(CLIENTS)

    def ask(n: int) -> str:
        ready.wait()
        try:
            cluster.launch(f"m{n}")
        except Problem as problem:
            return problem.code
        return "launched"

    with ThreadPoolExecutor(CLIENTS) as pool:
        said = Counter(pool.map(ask, range(CLIENTS)))
    assert said == {"launched": 1, "quota_exceeded": CLIENTS - 1}
    assert cluster.sql("SELECT count(*) AS n FROM claims WHERE state = 'held'")[0].n == 3


def test_what_waits_for_a_quota_is_let_in_when_there_is_room(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=4)
    set_(cluster, "gpus", 1)
    first = cluster.launch("first")
    agent.settle()
    second = cluster.launch("second", wait=True)
    assert cluster.allocation(second).state == "queued"
    assert queue.sweep(cluster.store) == 0
    cluster.release(first)
    assert queue.sweep(cluster.store) == 0, "it is not scrubbed yet"
    agent.settle()
    assert queue.sweep(cluster.store) == 1
    assert cluster.allocation(second).state == "provisioning"


def test_more_than_may_ever_be_had_does_not_wait(cluster: Cluster) -> None:
    cluster.agent(gpus=4)
    set_(cluster, "gpus", 1)
    with pytest.raises(Problem, match="uses 0 of 1 GPUs at a time, this needs 2"):
        cluster.launch("two", offer="h100-2", wait=True)


def test_hours_that_are_used_up_end_launches_not_machines(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=4)
    first = cluster.launch("first")
    agent.settle()
    set_(cluster, "gpu_hours", 1)
    cluster.launch("second")
    cluster.store.clock = Later(hours=2)
    with pytest.raises(Problem, match="of 1 GPU hours a month"):
        cluster.launch("third")
    assert cluster.allocation(first).state == "active"
    set_(cluster, "gpu_hours", None)
    cluster.launch("third")
