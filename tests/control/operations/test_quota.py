"""Quotas are never exceeded, however many ask at once; what waits for one is let in when there is room."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from control.cluster import Cluster
from gpuaas.control.app import offers, quotas, reservations, usage
from gpuaas.control.store.transaction import Store, connect
from gpuaas.control.sweeps import queue
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.wire.api import LeaseRequest

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


def alone(cluster: Cluster) -> None:
    """An offer of one GPU, on a node that nobody else is on."""
    cluster.store.transact(
        offers.create_offer, cluster.caller, slug="alone", name="alone", gpu_model="H100", gpu_count=1, cpus=1,
        memory_mib=256, isolation="dedicated_node", realisations=["gpu_slice"], price_micros_per_hour=0,
    )  # fmt: skip


def standings(cluster: Cluster) -> dict[str, float]:
    return {item.kind: item.used for item in cluster.store.transact(quotas.of_org, cluster.caller, "home")}


def test_who_has_a_node_alone_counts_with_all_that_they_hold(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=4)
    alone(cluster)
    set_(cluster, "gpus", 3)
    with pytest.raises(Problem, match="uses 0 of 3 GPUs at a time, this needs 4"):
        cluster.launch("one", offer="alone")
    with pytest.raises(Problem, match="this needs 4"):
        cluster.launch("one", offer="alone", wait=True)
    set_(cluster, "gpus", 5)
    other = cluster.agent("other", gpus=2)
    cluster.launch("filler", offer="h100-2")  # on the fullest that fits
    waiting = cluster.launch("one", offer="alone", wait=True)
    assert cluster.allocation(waiting).state == "queued", "2 and 4 are more than 5"
    assert queue.sweep(cluster.store) == 0
    set_(cluster, "gpus", 6)
    assert queue.sweep(cluster.store) == 1
    for each in (agent, other):
        each.settle()
    assert standings(cluster)["gpus"] == 6
    with pytest.raises(Problem, match="uses 6 of 6 GPUs"):
        cluster.launch("more")
    began = cluster.allocation(waiting).active_at
    cluster.store.clock = Later(hours=1)
    lines = cluster.store.transact(usage.of_project, cluster.caller, cluster.project.id, began, None)[1]
    hours = sum(line.gpu_microseconds for line in lines) / 3_600_000_000
    assert hours == pytest.approx(6, abs=0.1)
    assert standings(cluster)["gpu_hours"] == pytest.approx(hours, abs=0.1)


def test_and_so_does_who_has_booked_one(cluster: Cluster) -> None:
    cluster.agent(gpus=4)
    alone(cluster)
    set_(cluster, "gpus", 3)
    now = cluster.store.clock.now()
    when = now + timedelta(hours=1), now + timedelta(hours=2)

    def book() -> None:
        cluster.store.transact(reservations.book, cluster.caller, "window", "alone", None, 1, *when, None, None)

    with pytest.raises(Problem, match="this needs 4"):
        book()
    set_(cluster, "gpus", 4)
    book()
    with pytest.raises(Problem, match="will use, with what is reserved, 4 of 4 GPUs"):
        cluster.launch("beside", lease=LeaseRequest(max_duration_seconds=24 * 3600))
