"""Where machines go, through the store: by the counts, in line, together, all or none."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.app import nodes as fleet
from gpuaas.control.app import slots as under_hand
from gpuaas.control.app.offers import usable_offer
from gpuaas.control.app.plans import plan
from gpuaas.control.http import views
from gpuaas.control.operations import launch
from gpuaas.control.operations.placing import NEAREST_FIRST
from gpuaas.control.placement.plan import plan as planned
from gpuaas.control.store import capacity, slots
from gpuaas.control.store.transaction import Store, connect
from gpuaas.control.sweeps import queue
from gpuaas.kit.errors import Problem
from gpuaas.model.placement import NodeView
from gpuaas.wire.node import Inventory, SlotProposal


def counts(cluster: Cluster) -> list[tuple[Any, ...]]:
    rows = cluster.sql("SELECT n.name, c.open, c.slots, c.free_slots, c.free_gpus, c.together, c.linked"
                       " FROM capacity c"
                       " JOIN nodes n ON n.id = c.node_id ORDER BY n.name")  # fmt: skip
    return [tuple(row) for row in rows]


def node_of(cluster: Cluster, id: str) -> str:
    found = cluster.allocation(id).node_id
    assert found is not None
    return found


def test_counts_follow_every_change(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=2)
    assert counts(cluster) == [("a", True, 2, 2, 2, 2, 1)]
    id = cluster.launch("m")
    assert counts(cluster) == [("a", True, 2, 1, 1, 1, 1)]
    agent.settle()
    cluster.release(id)
    assert counts(cluster) == [("a", True, 2, 1, 1, 1, 1)], "not scrubbed yet"
    agent.settle()
    assert counts(cluster) == [("a", True, 2, 2, 2, 2, 1)]
    agent.report(inventory=agent.inventory(ready=False))
    assert counts(cluster) == [("a", False, 2, 2, 2, 2, 1)]
    agent.report(inventory=agent.inventory(slots=agent.inventory().slots[:1]))
    assert counts(cluster) == [("a", True, 1, 1, 1, 1, 1)]


def test_a_slot_counts_from_its_approval_on(cluster: Cluster) -> None:
    cluster.agent("a", gpus=2, approve_slots=False)
    assert counts(cluster) == [("a", True, 2, 0, 0, 0, 0)]
    cluster.store.transact(fleet.approve, cluster.caller, "a", ["gpu-1"])
    assert counts(cluster) == [("a", True, 2, 1, 1, 1, 1)]


def test_the_fullest_node_is_taken_and_a_whole_one_is_kept(cluster: Cluster) -> None:
    cluster.agent("a", gpus=4)
    cluster.agent("b", gpus=4)
    homes = {node_of(cluster, cluster.launch(f"m{n}")) for n in range(4)}
    assert len(homes) == 1
    assert node_of(cluster, cluster.launch("last")) not in homes


def test_neighbours_are_worth_more_than_a_full_node(cluster: Cluster) -> None:
    split, whole = cluster.agent("a", gpus=2), cluster.agent("b", gpus=4)
    for agent, apart in ((split, 1), (whole, 0)):
        proposed = [msgspec.structs.replace(slot, numa=n * apart) for n, slot in enumerate(agent.inventory().slots)]
        agent.report(inventory=agent.inventory(slots=proposed))
    assert counts(cluster) == [("a", True, 2, 2, 2, 1, 1), ("b", True, 4, 4, 4, 4, 1)]
    assert node_of(cluster, cluster.launch("two", offer="h100-2")) == whole.node_id
    assert node_of(cluster, cluster.launch("one")) == split.node_id
    assert node_of(cluster, cluster.launch("two-more", offer="h100-2")) == whole.node_id


def linked(agent: Agent, size: int) -> Inventory:
    """With links between so many neighbours each."""
    made = agent.inventory()
    return agent.inventory(gpus=[msgspec.structs.replace(gpu, link_group=gpu.index // size) for gpu in made.gpus])


def test_a_whole_pair_is_worth_more_than_a_full_node(cluster: Cluster) -> None:
    torn, whole = cluster.agent("a", gpus=4), cluster.agent("b", gpus=4)
    torn.report(inventory=linked(torn, 2))
    for slot in ("gpu-0", "gpu-2"):
        cluster.store.transact(under_hand.quarantine, cluster.caller, "a", slot, "a look")
    whole.report(inventory=linked(whole, 2))
    assert counts(cluster) == [("a", True, 4, 2, 2, 2, 1), ("b", True, 4, 4, 4, 4, 2)]
    seat = cluster.store.transact(plan, cluster.caller, "h100-2", None, 1).seats[0]
    assert (seat.node_name, seat.link_groups) == ("b", 1)
    user = replace(cluster.caller, platform_role=None)
    told = views.plan(cluster.store.transact(plan, user, "h100-2", None, 1))
    assert (told.fits, told.seats) == (True, []), "nodes are for operators"
    assert node_of(cluster, cluster.launch("pair", offer="h100-2")) == whole.node_id
    assert node_of(cluster, cluster.launch("one")) == torn.node_id
    assert counts(cluster) == [("a", True, 4, 1, 1, 1, 1), ("b", True, 4, 2, 2, 2, 2)]
    assert node_of(cluster, cluster.launch("another")) == torn.node_id
    assert node_of(cluster, cluster.launch("last pair", offer="h100-2")) == whole.node_id


def test_links_that_are_found_later_are_counted(cluster: Cluster) -> None:
    agent = cluster.agent("a", gpus=4)
    before = [slot.id for slot in cluster.slots(agent)]
    agent.report(inventory=linked(agent, 4))
    assert counts(cluster) == [("a", True, 4, 4, 4, 4, 4)]
    assert [(slot.id, slot.link_group, slot.state) for slot in cluster.slots(agent)] == [
        (id, 0, "approved") for id in before
    ]


def test_fifty_at_once_fill_one_node_and_nobody_is_turned_away(cluster: Cluster, database_url: str) -> None:
    cluster.agent("a", gpus=50)
    cluster.store.engine.dispose()
    cluster.store = Store(connect(database_url, pool_size=50))
    with ThreadPoolExecutor(50) as pool:
        made = list(pool.map(lambda n: cluster.launch(f"m{n}"), range(50)))
    rows = cluster.sql("SELECT count(DISTINCT slot_id) AS slots, count(*) AS claims FROM claims WHERE state = 'held'")
    assert (rows[0].slots, rows[0].claims) == (50, 50)
    assert len({cluster.allocation(id).seat for id in made}) == 50
    assert counts(cluster) == [("a", True, 50, 0, 0, 0, 0)]
    with pytest.raises(Problem, match="in use"):
        cluster.launch("one too many")


def test_a_group_is_placed_whole_beside_others_who_take_what_they_can(cluster: Cluster, database_url: str) -> None:
    for name in "abcd":
        cluster.agent(name, gpus=4)
    cluster.store.engine.dispose()
    cluster.store = Store(connect(database_url, pool_size=12))

    def launch(n: int) -> str:
        try:
            return cluster.launch(f"m{n}", count=3 if n % 2 else 1)
        except Problem as problem:
            return problem.code

    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(launch, range(12)))
    sizes = cluster.sql("SELECT count(*) AS n FROM allocations GROUP BY group_id")
    assert sorted({row.n for row in sizes}) in ([1], [3], [1, 3])
    assert {result for result in results if not result.startswith("al-")} <= {"no_capacity"}
    assert len(sizes) == sum(result.startswith("al-") for result in results)
    assert cluster.sql("SELECT count(*) AS n FROM claims")[0].n == sum(row.n for row in sizes)
    assert sum(row[3] for row in counts(cluster)) == 16 - sum(row.n for row in sizes)


def test_what_the_counts_cannot_see_is_still_found(cluster: Cluster) -> None:
    """Enough GPUs and too little memory on many nodes, and one node that has it."""
    small = [cluster.agent(f"small-{n}", gpus=1) for n in range(6)]
    big = cluster.agent("zz-big", gpus=2)
    assert small[0].inventory().slots[0].memory_mib == 4096
    slots = [SlotProposal(f"big-{n}", [f"GPU-zz-big-{n}"], 4, 1 << 20) for n in range(2)]
    big.report(inventory=big.inventory(slots=slots))
    cluster.sql("UPDATE offers SET memory_mib = 65536 WHERE slug = 'h100-1'")
    assert node_of(cluster, cluster.launch("m")) == big.node_id
    found = cluster.store.transact(plan, cluster.caller, "h100-1", None, 1)
    assert found.fits


def test_a_node_that_was_drained_or_kept_just_before_it_was_locked_is_not_used(cluster: Cluster) -> None:
    """The counts are of the moment before the lock: whoever had it then may have closed the node."""
    cluster.agent("a", gpus=2)
    offer = cluster.store.transact(usable_offer, "h100-1")
    wanted = launch.wanted(offer, cluster.project.org_id, 1)

    def locked() -> NodeView:
        cluster.sql("UPDATE capacity SET open = true")
        found = cluster.store.transact(slots.lock_best, wanted, NEAREST_FIRST[-1], [])
        assert found is not None
        return found

    assert planned([locked()], wanted).fits
    cluster.store.transact(under_hand.drain, cluster.caller, "a", None, "new fans", None)
    assert {reason.code for reason in planned([locked()], wanted).reasons} == {"node_drained"}
    cluster.store.transact(under_hand.undrain, cluster.caller, "a", None)
    cluster.launch("one")
    cluster.launch("large", offer="h100-2", wait=True)
    queue.sweep(cluster.store)
    assert {reason.code for reason in planned([locked()], wanted).reasons} == {"node_held"}


def test_who_locks_all_that_is_usable_locks_what_is_kept_for_them(cluster: Cluster) -> None:
    kept = cluster.agent("a", gpus=2)
    cluster.launch("one")
    large = cluster.allocation(cluster.launch("large", offer="h100-2", wait=True))
    queue.sweep(cluster.store)
    wanted = launch.wanted(cluster.store.transact(usable_offer, "h100-2"), large.org_id, 1)
    assert cluster.store.transact(capacity.lock_usable, wanted) == []
    first = replace(wanted, group_id=large.group_id)
    assert cluster.store.transact(capacity.lock_usable, first) == [kept.node_id]
