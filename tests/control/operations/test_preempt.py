"""Preemptible machines give way: told first, the fewest, only if needed; and who waited gets the place."""

from datetime import timedelta
from typing import Any

from control.cluster import Cluster
from control.operations.test_waiting import Later, line, states
from gpuaas.control.sweeps import preemptions, queue

AFTER = {"minutes": 6}  # the grace is five


def told(cluster: Cluster, type: str = "preemption.warning") -> list[str]:
    return [
        row.data["name"] for row in cluster.sql("SELECT data FROM events WHERE type = :type ORDER BY at", type=type)
    ]


def usage(cluster: Cluster, id: str) -> list[Any]:
    return cluster.sql("SELECT started_at, ended_at FROM usage WHERE resource_id = :id", id=id)


def test_it_is_told_then_released_and_who_waited_gets_the_place(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    spot, normal = cluster.launch("spot", preemptible=True), cluster.launch("normal")
    agent.settle()
    waits = cluster.launch("waits", wait=True)
    assert queue.sweep(cluster.store) == 0
    assert told(cluster) == ["spot"]
    assert preemptions.sweep(cluster.store) == 0, "it has its grace"
    assert states(cluster, spot, normal, waits) == ["active", "active", "queued"]
    (item,) = line(cluster)
    assert item.ticket.reasons[0]["code"] == "giving_way"
    assert "give way" in cluster.operation(waits).phases[0]["message"]
    queue.sweep(cluster.store)
    assert told(cluster) == ["spot"], "told once"
    small = cluster.launch("small", wait=True)
    cluster.store.clock = Later(**AFTER)
    assert preemptions.sweep(cluster.store) == 1
    assert states(cluster, spot, normal) == ["releasing", "active"]
    (interval,) = usage(cluster, spot)
    (moved,) = cluster.sql("SELECT at FROM events WHERE type = 'allocation.releasing'")
    assert interval.ended_at == moved.at, "not a second of its end is charged"
    assert "preempted" in cluster.operation(spot).phases[0]["message"]
    agent.settle()
    assert queue.sweep(cluster.store) == 1
    assert states(cluster, spot, waits, small) == ["released", "provisioning", "queued"]
    assert cluster.sql("SELECT * FROM preemptions") == []
    (entry,) = cluster.sql("SELECT * FROM audit WHERE action = 'allocation.release'")
    assert (entry.object_id, entry.actor, entry.data["reason"]) == (spot, "system", "preempted")


def test_only_preemptible_machines_and_only_for_those_who_are_not(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    cluster.launch("normal")
    agent.settle()
    cluster.launch("waits", wait=True)
    queue.sweep(cluster.store)
    assert told(cluster) == []


def test_a_preemptible_request_asks_nobody_and_holds_nobody_up(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    cluster.launch("spot", preemptible=True)
    agent.settle()
    cluster.launch("also-spot", wait=True, preemptible=True)
    queue.sweep(cluster.store)
    assert told(cluster) == []
    assert cluster.sql("SELECT * FROM holds") == []
    cluster.launch("waits", wait=True)
    queue.sweep(cluster.store)
    assert told(cluster) == ["spot"]


def test_nobody_gives_way_where_it_does_not_help(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    cluster.launch("normal")
    cluster.launch("spot", preemptible=True)
    agent.settle()
    cluster.launch("large", offer="h100-2", wait=True)
    queue.sweep(cluster.store)
    assert told(cluster) == []


def test_it_is_called_off_when_there_is_room_elsewhere(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    spot, normal = cluster.launch("spot", preemptible=True), cluster.launch("normal")
    agent.settle()
    waits = cluster.launch("waits", wait=True)
    queue.sweep(cluster.store)
    assert told(cluster) == ["spot"]
    cluster.release(normal)
    queue.sweep(cluster.store)
    assert told(cluster, "preemption.cancelled") == ["spot"], "what is being scrubbed is enough"
    agent.settle()
    assert queue.sweep(cluster.store) == 1
    cluster.store.clock = Later(**AFTER)
    assert preemptions.sweep(cluster.store) == 0
    assert states(cluster, spot, waits) == ["active", "provisioning"]


def test_it_is_called_off_when_nobody_waits_any_more(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    spot = cluster.launch("spot", preemptible=True)
    agent.settle()
    waits = cluster.launch("waits", wait=True)
    queue.sweep(cluster.store)
    cluster.release(waits)
    cluster.store.clock = Later(**AFTER)
    assert preemptions.sweep(cluster.store) == 0
    assert states(cluster, spot) == ["active"]
    assert told(cluster, "preemption.cancelled") == ["spot"]


def test_the_grace_is_the_operators(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    cluster.launch("spot", preemptible=True)
    agent.settle()
    cluster.launch("waits", wait=True)
    cluster.store.preemption_grace = timedelta(hours=1)
    queue.sweep(cluster.store)
    cluster.store.clock = Later(minutes=59)
    assert preemptions.sweep(cluster.store) == 0
    cluster.store.clock = Later(minutes=61)
    assert preemptions.sweep(cluster.store) == 1
