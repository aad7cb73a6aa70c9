"""The line: who is placed, for whom nodes are kept, who gives up."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from control.cluster import Cluster
from gpuaas.control.app import quotas, reservations
from gpuaas.control.app.plans import plan
from gpuaas.control.app.queue import Waiting, list_waiting
from gpuaas.control.operations import waiting
from gpuaas.control.sweeps import queue
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.errors import Problem
from gpuaas.model.queue import MOST_WAITING
from gpuaas.model.reservation import TAIL
from gpuaas.wire.api import LeaseRequest


class Later(SystemClock):
    def __init__(self, **more: int) -> None:
        self._more = timedelta(**more)

    def now(self) -> datetime:
        return super().now() + self._more


def states(cluster: Cluster, *ids: str) -> list[str]:
    return [cluster.allocation(id).state for id in ids]


def line(cluster: Cluster) -> list[Waiting]:
    return cluster.store.transact(list_waiting, cluster.caller, None)


def names(cluster: Cluster) -> list[tuple[int, str, bool]]:
    return [(item.position, item.machines[0].name, item.kept) for item in line(cluster)]


def holds(cluster: Cluster) -> list[Any]:
    return cluster.sql("SELECT * FROM holds")


def test_small_ones_never_pass_a_large_one_for_ever(cluster: Cluster) -> None:
    """Two nodes of two. The large request is first; single ones go on beside it, not on what is kept for it."""
    one, other = cluster.agent("a", gpus=2), cluster.agent("b", gpus=2)
    busy = [cluster.launch(f"busy-{n}") for n in range(3)]
    for agent in (one, other):
        agent.settle()
    large = cluster.launch("large", offer="h100-2", wait=True)
    assert queue.sweep(cluster.store) == 0
    assert names(cluster) == [(1, "large", True)]
    small = cluster.launch("small", wait=True)
    assert states(cluster, small) == ["queued"], "the only free slot is on the node that is kept"
    kept = holds(cluster)[0].node_id
    there, elsewhere = [], []
    for id in busy:
        (there if cluster.allocation(id).node_id == kept else elsewhere).append(id)
    assert (len(there), len(elsewhere)) == (1, 2), "kept is the node with the fewest to leave"
    cluster.release(elsewhere[0])
    for agent in (one, other):
        agent.settle()
    assert queue.sweep(cluster.store) == 1
    assert states(cluster, small, large) == ["provisioning", "queued"], "backfill"
    cluster.release(there[0])
    for agent in (one, other):
        agent.settle()
    assert queue.sweep(cluster.store) == 1
    assert states(cluster, large) == ["provisioning"]
    assert (names(cluster), holds(cluster)) == ([], [])
    assert all(row.open for row in cluster.sql("SELECT open FROM capacity"))


def test_who_is_first_now_gets_what_was_kept_for_who_was_first_before(cluster: Cluster) -> None:
    cluster.agent("a", gpus=2)
    cluster.launch("busy")
    large = cluster.launch("large", offer="h100-2", wait=True)
    assert queue.sweep(cluster.store) == 0
    assert names(cluster) == [(1, "large", True)]
    urgent = cluster.launch("urgent", wait=True, priority=9)
    later = cluster.launch("later", wait=True, priority=1)
    assert queue.sweep(cluster.store) == 1
    assert states(cluster, urgent, large, later) == ["provisioning", "queued", "queued"]
    assert names(cluster) == [(1, "large", True), (2, "later", False)]


def test_who_waits_for_a_quota_holds_nobody_up(cluster: Cluster) -> None:
    cluster.agent("a", gpus=2)
    cluster.launch("first")
    cluster.store.transact(quotas.set_project, cluster.caller, cluster.project.id, "allocations", 1)
    waiting = cluster.launch("second", wait=True)
    assert queue.sweep(cluster.store) == 0
    assert holds(cluster) == []
    (item,) = line(cluster)
    assert [reason["code"] for reason in item.ticket.reasons] == ["project_quota_exceeded"]
    cluster.store.transact(quotas.set_project, cluster.caller, cluster.project.id, "allocations", 2)
    assert queue.sweep(cluster.store) == 1
    assert states(cluster, waiting) == ["provisioning"]


def test_it_gives_up_after_the_time_it_was_given(cluster: Cluster) -> None:
    patient, hasty = cluster.launch("patient", wait=True), cluster.launch("hasty", wait=True, wait_seconds=3600)
    assert queue.sweep(cluster.store) == 0
    cluster.store.clock = Later(hours=2)
    queue.sweep(cluster.store)
    assert states(cluster, patient, hasty) == ["queued", "released"]
    assert [row.data["name"] for row in cluster.sql("SELECT data FROM events WHERE type = 'queue.expired'")] == [
        "hasty"
    ]


def test_the_long_line_of_one_project_starves_nobody(cluster: Cluster) -> None:
    """Theirs are older, and more than one run has time for."""
    mine, late = cluster.launch("mine", wait=True), cluster.launch("late", wait=True, priority=1)
    cluster.sql(
        "INSERT INTO projects (id, org_id, slug, name, created_at)"
        " SELECT 'pj-' || n, org_id, 'other-' || n, 'Other', now() FROM projects, generate_series(1, 2) AS n"
    )
    cluster.sql(
        "INSERT INTO queue (group_id, org_id, project_id, offer_id, gpu_model, gpus, priority, reasons, created_at)"
        " SELECT 'gr-' || o.id || n, q.org_id, o.id, q.offer_id, q.gpu_model, 1, 5, '[]', now() - interval '1h'"
        " FROM queue q, projects o, generate_series(1, 50) AS n WHERE o.id LIKE 'pj-_' AND q.priority = 5"
    )
    tried = cluster.store.transact(waiting.line, 3)
    assert len(tried) == 3
    assert cluster.allocation(mine).group_id in {ticket.group_id for ticket in tried}
    assert cluster.allocation(late).group_id not in {ticket.group_id for ticket in tried}, "of each its first"
    assert [len(cluster.store.transact(waiting.line, most)) for most in (1, 30, None)] == [3, 2 + 10 + 10, 102]
    assert {item.machines[0].id for item in line(cluster)} == {mine, late}, "everybody sees theirs, tried or not"


def test_a_project_has_so_many_in_line_and_no_more(cluster: Cluster) -> None:
    first = cluster.launch("first", wait=True)
    cluster.sql(
        "INSERT INTO queue (group_id, org_id, project_id, offer_id, gpu_model, gpus, priority, reasons, created_at)"
        " SELECT 'gr-' || n, org_id, project_id, offer_id, gpu_model, 1, 5, '[]', now()"
        " FROM queue, generate_series(2, :most) AS n",
        most=MOST_WAITING,
    )
    with pytest.raises(Problem, match="in line already") as refused:
        cluster.launch("one-more", wait=True)
    assert (refused.value.code, refused.value.status) == ("too_many_waiting", 409)
    cluster.agent(gpus=1)
    cluster.launch("fits", wait=True)  # it needs no place in the line
    cluster.release(first)
    queue.sweep(cluster.store)
    cluster.launch("one-more", wait=True)


def test_cancelled_is_out_of_the_line(cluster: Cluster) -> None:
    cluster.agent("a", gpus=1)
    cluster.launch("busy")
    id = cluster.launch("waits", wait=True)
    queue.sweep(cluster.store)
    assert names(cluster) == [(1, "waits", True)]
    cluster.release(id)
    queue.sweep(cluster.store)
    assert (names(cluster), holds(cluster), cluster.sql("SELECT * FROM queue")) == ([], [], [])


def test_a_projects_priority_and_reasons_are_visible(cluster: Cluster) -> None:
    cluster.agent("a", gpus=1)
    cluster.launch("busy")
    cluster.launch("plain", wait=True)
    cluster.launch("urgent", wait=True, priority=9)
    queue.sweep(cluster.store)
    assert names(cluster) == [(1, "urgent", True), (2, "plain", False)]
    assert {reason["code"] for reason in line(cluster)[1].ticket.reasons} == {"node_held"}


def test_a_plan_knows_when_leases_make_room(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=1)
    id = cluster.launch("busy", lease=LeaseRequest(max_duration_seconds=3600))
    agent.settle()
    began = cluster.allocation(id).active_at
    assert began is not None
    found = cluster.store.transact(plan, cluster.caller, "h100-1", None, 1)
    assert (found.fits, found.earliest) == (False, began + timedelta(hours=1) + TAIL)
    assert cluster.store.transact(plan, cluster.caller, "h100-2", None, 1).earliest is None
    cluster.release(id)
    found = cluster.store.transact(plan, cluster.caller, "h100-1", None, 1)
    assert found.earliest is not None
    assert found.earliest < began + timedelta(minutes=10), "it is being scrubbed"


def test_a_plan_says_what_a_quota_would_say(cluster: Cluster) -> None:
    cluster.agent("a", gpus=2)
    cluster.store.transact(quotas.set_project, cluster.caller, cluster.project.id, "gpus", 1)
    assert cluster.store.look(lambda tx: plan(tx, cluster.caller, "h100-1", None, 1)).fits
    cluster.launch("one")
    found = cluster.store.look(lambda tx: plan(tx, cluster.caller, "h100-1", None, 1))
    assert (found.fits, [reason.code for reason in found.reasons]) == (False, ["project_quota_exceeded"])
    both = cluster.store.look(lambda tx: plan(tx, cluster.caller, "h100-2", None, 1))
    assert {"project_quota_exceeded", "slot_in_use"} <= {reason.code for reason in both.reasons}


def test_a_plan_uses_the_time_before_a_reservation_as_a_launch_does(cluster: Cluster) -> None:
    cluster.agent("a", gpus=1)
    now = cluster.store.clock.now()
    window = now + timedelta(hours=6), now + timedelta(hours=8)
    cluster.store.transact(reservations.book, cluster.caller, "later", "h100-1", None, 1, *window, None, None)

    def fits(**more: Any) -> bool:
        return cluster.store.look(lambda tx: plan(tx, cluster.caller, "h100-1", None, 1, **more)).fits

    assert [fits(), fits(max_seconds=7 * 3600), fits(max_seconds=3600), fits(preemptible=True)] == [
        *(False, False, True, True)
    ]
    longer = cluster.store.look(lambda tx: plan(tx, cluster.caller, "h100-1", None, 1, max_seconds=7 * 3600))
    assert longer.earliest == window[1] + TAIL
