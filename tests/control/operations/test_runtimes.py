"""Runtimes of machines: applied, switched, rolled back, repaired, removed; what nodes say decides how it ends."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from control import catalog
from control.cluster import Cluster
from control.fleet import Agent, condition
from gpuaas.control.app import plans, runtime_bundles, runtimes
from gpuaas.control.store import allocation_runtimes, operations
from gpuaas.control.sweeps import queue
from gpuaas.kit.errors import Problem
from gpuaas.model.identity import Caller
from gpuaas.model.operation import Operation
from gpuaas.model.placement import Plan
from gpuaas.model.runtime import MOST_KEPT
from gpuaas.wire.node import Failure, RuntimeReport, Spec


@pytest.fixture
def agent(cluster: Cluster) -> Agent:
    return cluster.agent()


@pytest.fixture
def machine(cluster: Cluster, agent: Agent) -> str:
    id = cluster.launch()
    agent.settle()
    return id


def publish(cluster: Cluster, *versions: str, slug: str = "torch", **more: Any) -> None:
    for version in versions:
        catalog.publish(cluster.store, slug, version, **more)


def apply(cluster: Cluster, id: str, slug: str | None, version: str | None = None, replaces: str | None = None,
          by_id: str | None = None) -> Operation:  # fmt: skip
    return cluster.store.transact(runtimes.apply, cluster.caller, id, by_id, slug, version, replaces, actor="us-ada")[1]


def rollback(cluster: Cluster, id: str, slug: str = "torch", version: str | None = None) -> Operation:
    return cluster.store.transact(runtimes.rollback, cluster.caller, id, slug, version)[1]


def remove(cluster: Cluster, id: str, slug: str = "torch") -> Operation:
    return cluster.store.transact(runtimes.remove, cluster.caller, id, slug)[1]


def operation(cluster: Cluster, started: Operation) -> Operation:
    found = cluster.store.transact(operations.by_id, started.id)
    assert found is not None
    return found


def states(cluster: Cluster, id: str) -> dict[str, str]:
    """Of the live rows, by name."""
    rows = cluster.store.transact(allocation_runtimes.live, id)
    return {f"{row.slug}:{row.version}": row.state for row, _ in rows}


def specified(agent: Agent, id: str) -> list[str]:
    """What the node was told last, the current ones with a star."""
    agent.pull()
    body = agent.specs[id].body
    assert body is not None
    return [f"{each.bundle}:{each.version}{'*' if each.current else ''}" for each in body.runtimes]


def events(cluster: Cluster, kind: str = "runtime.%") -> list[tuple[str, dict[str, Any]]]:
    found = cluster.sql("SELECT type, data FROM events WHERE type LIKE :kind ORDER BY seq", kind=kind)
    return [(row.type, row.data) for row in found]


def refusal(cluster: Cluster, *asked: Any, **more: Any) -> Problem:
    with pytest.raises(Problem) as refused:
        apply(cluster, *asked, **more)
    return refused.value


def test_applied_while_the_machine_runs(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    agent.fetching = {"1": 40}
    started = apply(cluster, machine, "torch")
    assert (started.kind, started.state) == ("runtime.apply", "running")
    agent.settle()
    shown = operation(cluster, started)
    assert [(phase["name"], phase["state"], phase["percent"]) for phase in shown.phases] == [
        ("deliver", "done", 100),
        ("fetch", "running", 40),
        ("ready", "pending", None),
    ]
    assert (cluster.allocation(machine).state, states(cluster, machine)) == ("active", {"torch:1": "applying"})
    agent.fetching = {}
    agent.report(agent._outcome(agent.specs[machine], frozenset()))  # the same generation, told again
    assert operation(cluster, started).state == "succeeded"
    assert states(cluster, machine) == {"torch:1": "applied"}
    ((type, data),) = events(cluster)
    assert (type, data["bundle"], data["version"], data["by"]) == ("runtime.applied", "torch", "1", "us-ada")


def test_what_the_node_says_of_the_machine_alone_ends_nothing(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    started = apply(cluster, machine, "torch")
    (spec,) = agent.pull()
    agent.report(condition(spec, "ready"))
    agent.report(condition(spec, "ready", runtimes=[RuntimeReport("torch", "1", "ready", current=False)]))
    agent.report(condition(spec, "ready", runtimes=[RuntimeReport("other", "1", "ready", current=True)]))
    assert operation(cluster, started).state == "running"


def test_an_older_report_does_not_end_a_newer_wish(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    apply(cluster, machine, "torch")
    agent.settle()
    older = agent.specs[machine]
    again = cluster.store.transact(runtimes.repair, cluster.caller, machine, "torch")[1]
    agent.report(condition(older, "ready", runtimes=agent.stand(older)))
    assert operation(cluster, again).state == "running"
    agent.settle()
    assert operation(cluster, again).state == "succeeded"
    assert agent.specs[machine].body.repairs == 1  # type: ignore[union-attr]
    assert states(cluster, machine) == {"torch:1": "applied"}


def test_upgraded_and_rolled_back_side_by_side(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", "2")
    for version in ("1", "2"):
        apply(cluster, machine, "torch", version)
        assert specified(agent, machine)[0] == f"torch:{version}*"
        agent.report(agent._outcome(agent.specs[machine], frozenset()))
    assert states(cluster, machine) == {"torch:1": "kept", "torch:2": "applied"}
    for current, beside in (("1", "2"), ("2", "1")):
        started = rollback(cluster, machine)
        assert started.kind == "runtime.rollback"
        assert specified(agent, machine) == [f"torch:{current}*", f"torch:{beside}"]
        agent.report(agent._outcome(agent.specs[machine], frozenset()))
        assert operation(cluster, started).state == "succeeded"
        assert states(cluster, machine) == {f"torch:{current}": "applied", f"torch:{beside}": "kept"}


def test_a_version_that_fails_is_taken_out_and_the_one_before_is_wanted_again(
    cluster: Cluster, agent: Agent, machine: str
) -> None:
    publish(cluster, "1", "2")
    apply(cluster, machine, "torch", "1")
    agent.settle()
    agent.refused = {"2"}
    started = apply(cluster, machine, "torch", "2")
    agent.settle()
    ended = operation(cluster, started)
    assert (ended.state, ended.failure_code, ended.failure_message) == ("failed", "bad_image", "It is damaged.")
    assert states(cluster, machine) == {"torch:1": "applied"}
    assert specified(agent, machine) == ["torch:1*"]
    assert cluster.allocation(machine).state == "active"
    assert [type for type, _ in events(cluster)] == ["runtime.applied", "runtime.failed"]


def test_a_version_that_becomes_ready_after_it_failed_is_taken_out_all_the_same(
    cluster: Cluster, agent: Agent, machine: str
) -> None:
    """A node tries again what failed, until it hears that it is not wanted any more."""
    publish(cluster, "1", "2")
    apply(cluster, machine, "torch", "1")
    agent.settle()
    started = apply(cluster, machine, "torch", "2")
    (asked,) = agent.pull()
    for refused in ({"2"}, set[str]()):
        agent.refused = refused
        agent.report(agent._outcome(asked, frozenset()))
    assert operation(cluster, started).state == "failed"
    assert states(cluster, machine) == {"torch:1": "applied"}
    assert specified(agent, machine) == ["torch:1*"]


def test_a_node_without_room_says_so_and_the_version_before_stays(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", "2")
    apply(cluster, machine, "torch", "1")
    agent.settle()
    started = apply(cluster, machine, "torch", "2")
    (spec,) = agent.pull()
    why = "The node cannot keep its image: it needs 900 MiB, and 50 MiB of the node's disk have to stay free."
    full = RuntimeReport("torch", "2", "failed", code="node_disk", message=why)
    agent.report(condition(spec, "ready", runtimes=[full, RuntimeReport("torch", "1", "ready", current=True)]))
    ended = operation(cluster, started)
    assert (ended.state, ended.failure_code, ended.failure_message) == ("failed", "node_disk", why)
    assert [phase["state"] for phase in ended.phases] == ["done", "failed", "pending"], "in the phase that fetches"
    assert specified(agent, machine) == ["torch:1*"]
    agent.settle()
    assert states(cluster, machine) == {"torch:1": "applied"}


def test_a_first_one_that_fails_leaves_nothing(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    agent.refused = {"1"}
    apply(cluster, machine, "torch")
    agent.settle()
    assert (states(cluster, machine), specified(agent, machine)) == ({}, [])
    agent.refused = set()
    apply(cluster, machine, "torch")  # a retry is a new wish
    agent.settle()
    assert states(cluster, machine) == {"torch:1": "applied"}


def test_newer_intent_supersedes_only_the_same_bundle(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", "2")
    publish(cluster, "4", slug="jupyter")
    notebook = apply(cluster, machine, "jupyter")
    first, second = (apply(cluster, machine, "torch", version) for version in ("1", "2"))
    assert specified(agent, machine) == ["jupyter:4*", "torch:2*"]
    agent.report(agent._outcome(agent.specs[machine], frozenset()))
    ends = [operation(cluster, each).state for each in (notebook, first, second)]
    assert ends == ["succeeded", "superseded", "succeeded"]


def test_a_rollback_while_another_is_on_its_way_keeps_what_is_there(
    cluster: Cluster, agent: Agent, machine: str
) -> None:
    publish(cluster, "1", "2")
    apply(cluster, machine, "torch", "1")
    agent.settle()
    agent.fetching = {"2": 0}
    pending = apply(cluster, machine, "torch", "2")
    agent.settle()
    rollback(cluster, machine)
    agent.settle()
    assert operation(cluster, pending).state == "superseded"
    assert (states(cluster, machine), specified(agent, machine)) == ({"torch:1": "applied"}, ["torch:1*"])


def test_rollback_without_anything_to_go_back_to_is_refused(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    with pytest.raises(Problem) as missing:
        rollback(cluster, machine)
    assert missing.value.status == 404
    apply(cluster, machine, "torch")
    agent.settle()
    for version in (None, "3"):
        with pytest.raises(Problem) as refused:
            rollback(cluster, machine, version=version)
        assert refused.value.code == "nothing_to_roll_back"


def test_only_so_many_versions_lie_beside(cluster: Cluster, agent: Agent, machine: str) -> None:
    versions = [str(number) for number in range(1, MOST_KEPT + 4)]
    publish(cluster, *versions)
    for version in versions:
        apply(cluster, machine, "torch", version)
        agent.settle()
    kept = [f"torch:{version}" for version in reversed(versions)][: MOST_KEPT + 1]
    assert specified(agent, machine) == [f"{kept[0]}*", *kept[1:]]


def test_removed_with_every_version(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", "2")
    for version in ("1", "2"):
        apply(cluster, machine, "torch", version)
        agent.settle()
    started = remove(cluster, machine)
    assert (started.kind, states(cluster, machine)) == ("runtime.remove", {})
    agent.settle()
    assert (operation(cluster, started).state, specified(agent, machine)) == ("succeeded", [])
    assert [type for type, _ in events(cluster)][-1] == "runtime.removed"


def test_what_is_replaced_goes_when_the_other_is_there(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    publish(cluster, "4", slug="jupyter")
    apply(cluster, machine, "torch")
    agent.settle()
    agent.refused = {"4"}
    apply(cluster, machine, "jupyter", replaces="torch")
    agent.settle()
    assert specified(agent, machine) == ["torch:1*"]  # nothing is lost by a change that fails
    agent.refused = set()
    apply(cluster, machine, "jupyter", replaces="torch")
    assert specified(agent, machine) == ["jupyter:4*", "torch:1*"]
    agent.report(agent._outcome(agent.specs[machine], frozenset()))
    assert specified(agent, machine) == ["jupyter:4*"]
    assert refusal(cluster, machine, "torch", replaces="rust").status == 422


def test_restart_and_other_keys_keep_the_runtime(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    apply(cluster, machine, "torch")
    agent.settle()
    cluster.restart(machine)
    assert specified(agent, machine) == ["torch:1*"]
    agent.report(condition(agent.specs[machine], "failed", failure=Failure("x", "It did not start.")))
    assert specified(agent, machine) == ["torch:1*"]  # back on the last good generation
    agent.settle()
    assert states(cluster, machine) == {"torch:1": "applied"}


def test_a_machine_that_fails_with_a_wish_goes_back_without_it(cluster: Cluster, agent: Agent, machine: str) -> None:
    """A poisoned spec is never tried again."""
    publish(cluster, "1")
    started = apply(cluster, machine, "torch")
    (spec,) = agent.pull()
    agent.report(condition(spec, "failed", failure=Failure("bad_spec", "The machine's order is too large.")))
    assert operation(cluster, started).state == "failed"
    assert (states(cluster, machine), specified(agent, machine)) == ({}, [])
    agent.settle()
    assert cluster.allocation(machine).state == "active"


def test_release_absorbs_and_leaves_no_wish(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", "2")
    apply(cluster, machine, "torch", "1")
    agent.settle()
    started = apply(cluster, machine, "torch", "2")
    cluster.release(machine)
    agent.settle()
    assert operation(cluster, started).state == "superseded"
    assert states(cluster, machine) == {}
    rows = cluster.store.transact(allocation_runtimes.history, machine, None, 10)
    assert [(row.version, row.state) for row, _ in rows] == [("2", "superseded"), ("1", "removed")]
    assert refusal(cluster, machine, "torch").code == "not_in_this_state"


def test_history_says_who_and_when(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", "2")
    for version in ("1", "2"):
        apply(cluster, machine, "torch", version)
        agent.settle()
    rollback(cluster, machine)
    agent.settle()
    rows = [row for row, _ in cluster.store.transact(allocation_runtimes.history, machine, None, 10)]
    assert [(row.action, row.version, row.previous_version, row.state) for row in rows] == [
        ("rollback", "1", "2", "applied"),
        ("apply", "2", "1", "kept"),
        ("apply", "1", None, "replaced"),
    ]
    assert [row.created_by for row in rows[1:]] == ["us-ada", "us-ada"]
    assert all(row.applied_at is not None for row in rows)
    page = cluster.store.transact(allocation_runtimes.history, machine, (rows[0].created_at, rows[0].id), 1)
    assert [row.id for row, _ in page] == [rows[1].id]


def test_what_was_there_and_is_damaged_is_told_once(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1")
    apply(cluster, machine, "torch")
    agent.settle()
    agent.refused = {"1"}
    for _ in range(2):
        agent.report(agent._outcome(agent.specs[machine], frozenset()))
    (row,) = [row for row, _ in cluster.store.transact(allocation_runtimes.live, machine)]
    assert (row.state, row.observed, row.message) == ("applied", "failed", "It is damaged.")
    assert [type for type, _ in events(cluster, "runtime.damaged")] == ["runtime.damaged"]
    assert specified(agent, machine) == ["torch:1*"]
    agent.refused = set()
    agent.report(agent._outcome(agent.specs[machine], frozenset()))
    (row,) = [row for row, _ in cluster.store.transact(allocation_runtimes.live, machine)]
    assert (row.state, row.observed, row.message) == ("applied", "ready", ""), "the node has healed it"


def test_by_id_by_name_or_by_both_if_they_agree(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1.9", "1.10", "1.10-cu126")
    (one,) = [each for each in cluster.store.transact(runtime_bundles.list_bundles, cluster.caller, False, None, 10)
              if each.version == "1.9"]  # fmt: skip
    for slug, version in ((None, None), ("torch", None), ("torch", "1.9"), ("torch:1.9", None), ("torch-1.9", None)):
        apply(cluster, machine, slug, version, by_id=one.id)
    for slug, version in (("torch", "1.10"), ("torch:1.10", None), ("jupyter", None), ("torch@1.x", None)):
        assert refusal(cluster, machine, slug, version, by_id=one.id).code == "runtime_mismatch"
    assert refusal(cluster, machine, None).status == 422
    assert refusal(cluster, machine, None, by_id="rb-aaaaaaaaaaaaaaaa").status == 404
    apply(cluster, machine, "torch@1.x")
    assert specified(agent, machine) == ["torch:1.10*"]


def test_what_is_unknown_is_refused_with_the_nearest_and_never_replaced(cluster: Cluster, machine: str) -> None:
    publish(cluster, "1.9")
    assert refusal(cluster, machine, "torhc").extra["nearest"][0] == "torch"
    assert "torch:1.9" in refusal(cluster, machine, "torch", "1.8").extra["nearest"]
    assert states(cluster, machine) == {}


def test_drafts_and_deprecated_ones_are_not_applied_anew(cluster: Cluster, agent: Agent, machine: str) -> None:
    publish(cluster, "1", state="draft")
    publish(cluster, "2", state="deprecated")
    assert refusal(cluster, machine, "torch", "1").code == "unknown_runtime"
    assert refusal(cluster, machine, "torch", "2").code == "runtime_deprecated"
    publish(cluster, "3", "4")
    for version in ("3", "4"):
        apply(cluster, machine, "torch", version)
        agent.settle()
    cluster.store.transact(runtime_bundles.deprecate, cluster.caller, "torch-3")
    rollback(cluster, machine)  # what lies on the machine can be gone back to
    assert specified(agent, machine) == ["torch:3*", "torch:4"]


def test_runtimes_of_another_project_do_not_exist(cluster: Cluster, machine: str) -> None:
    other = cluster.sql(
        "INSERT INTO projects (id, org_id, slug, name, created_at, event_seq) SELECT"
        " 'pj-aaaaaaaaaaaaaaaa', org_id, 'other', 'Other', now(), 0 FROM projects RETURNING id"
    )
    made = catalog.publish(cluster.store, "mine", "1", project_id=other[0].id, support="custom")
    assert refusal(cluster, machine, "mine").code == "unknown_runtime"
    assert refusal(cluster, machine, None, by_id=made.id).code == "not_found"


NEEDS = {
    "vendor": ({"gpu_family": "amd"}, {}, "it needs GPUs of amd, the machine has nvidia"),
    "driver": ({"min_driver": "560"}, {"driver": "550.90.07"}, "driver 560 or newer, the machine has 550.90.07"),
    "cuda": ({"cuda": "12.6"}, {"toolkit": "CUDA 12.4"}, "it needs CUDA 12.6 or newer, the machine has 12.4"),
    "memory": ({"min_memory_bytes": 512 * 2**30}, {}, "of memory"),
    "architecture": ({"architecture": "arm64"}, {}, "it is made for arm64, the machine is amd64"),
}  # fmt: skip


@pytest.mark.parametrize("what", NEEDS)
def test_what_a_machine_cannot_use_is_refused_before_placement_and_before_it_is_applied(
    cluster: Cluster, what: str
) -> None:
    needs, gpu, why = NEEDS[what]
    agent = cluster.agent(connect=False)
    agent.gpu = gpu
    agent.connect()
    publish(cluster, "1", **needs)
    id = cluster.launch()
    agent.settle()
    refused = refusal(cluster, id, "torch")
    assert refused.code == "runtime_incompatible"
    assert any(why in reason for reason in refused.extra["reasons"]), refused.extra
    for wait in (False, True):
        with pytest.raises(Problem) as early:
            cluster.launch("b", runtime_bundle_slug="torch", wait=wait)
        assert early.value.code == "runtime_incompatible"


def planned(cluster: Cluster, slug: str | None = None, count: int = 1, caller: Caller | None = None) -> Plan:
    return cluster.store.look(lambda tx: plans.plan(tx, caller or cluster.caller, "h100-1", None, count, None, slug))


@pytest.mark.parametrize("what", NEEDS)
def test_a_plan_says_why_no_machine_can_use_a_runtime(cluster: Cluster, what: str) -> None:
    """Before anything is launched, and also while every slot is taken: waiting would not help."""
    needs, gpu, why = NEEDS[what]
    agent = cluster.agent(gpus=1, connect=False)
    agent.gpu = gpu
    agent.connect()
    publish(cluster, "1", **needs)
    for _ in range(2):
        found = planned(cluster, "torch")
        assert (found.fits, found.earliest, found.runtime) == (False, None, "torch:1")
        (reason,) = found.reasons
        assert (reason.code, reason.count, reason.nodes) == ("runtime_unfit", 1, ("node-1",))
        assert why in reason.message
        if planned(cluster).fits:
            cluster.launch()
            agent.settle()
    everybody = replace(cluster.caller, platform_role=None)
    assert [reason.nodes for reason in planned(cluster, "torch", caller=everybody).reasons] == [()]


def test_a_plan_counts_only_nodes_that_can_use_the_runtime(cluster: Cluster) -> None:
    old, new = (cluster.agent(f"node-{number}", gpus=1, connect=False) for number in (1, 2))
    old.gpu, new.gpu = {"driver": "535.1"}, {"driver": "560.2"}
    for agent in (old, new):
        agent.connect()
    publish(cluster, "1", min_driver="550")
    assert [seat.node_name for seat in planned(cluster, "torch").seats] == ["node-2"]
    both = planned(cluster, "torch", count=2)
    assert {reason.code for reason in both.reasons} == {"not_enough", "runtime_unfit"}
    without = planned(cluster, count=2)
    assert (without.fits, without.runtime) == (True, None)
    with pytest.raises(Problem) as unknown:
        planned(cluster, "toch")
    assert unknown.value.code == "unknown_runtime"


def test_a_launch_goes_to_a_node_that_can_use_its_runtime(cluster: Cluster) -> None:
    old, new = (cluster.agent(f"node-{number}", gpus=1, connect=False) for number in (1, 2))
    old.gpu, new.gpu = {"driver": "535.1"}, {"driver": "560.2"}
    for agent in (old, new):
        agent.connect()
    publish(cluster, "1", min_driver="550")
    id = cluster.launch(runtime_bundle_slug="torch")
    assert cluster.allocation(id).node_id == new.node_id
    with pytest.raises(Problem) as full:
        cluster.launch("b", runtime_bundle_slug="torch")
    assert full.value.code == "no_capacity"
    codes = {reason["code"] for reason in full.value.extra["reasons"]}
    assert codes == {"runtime_unfit", "slot_in_use"}


def test_nothing_with_a_runtime_goes_to_an_agent_that_does_not_know_them(cluster: Cluster) -> None:
    agent = cluster.agent(connect=False)
    agent.runtimes = False
    agent.connect()
    publish(cluster, "1")
    with pytest.raises(Problem) as refused:
        cluster.launch(runtime_bundle_slug="torch")
    assert refused.value.code == "runtime_incompatible"
    id = cluster.launch()
    agent.settle()
    assert "agent" in refusal(cluster, id, "torch").extra["reasons"][0]


def test_an_agent_that_went_back_is_told_of_the_machine_without_its_runtimes(
    cluster: Cluster, agent: Agent, machine: str
) -> None:
    publish(cluster, "1")
    apply(cluster, machine, "torch")
    agent.runtimes = False
    agent.connect()
    (spec,) = agent.pull()
    assert spec.body is not None
    assert spec.body.runtimes == []


def test_chosen_at_launch_it_does_not_delay_the_machine(cluster: Cluster, agent: Agent) -> None:
    publish(cluster, "1")
    agent.fetching = {"1": 5}
    id = cluster.launch(runtime_bundle_slug="torch")
    agent.settle()
    assert (cluster.allocation(id).state, states(cluster, id)) == ("active", {"torch:1": "applying"})
    kinds = cluster.sql("SELECT kind, state FROM operations WHERE allocation_id = :id ORDER BY kind", id=id)
    assert [tuple(row) for row in kinds] == [("launch", "succeeded"), ("runtime.apply", "running")]
    agent.refused, agent.fetching = {"1"}, {}
    agent.report(agent._outcome(agent.specs[id], frozenset()))
    assert (cluster.allocation(id).state, states(cluster, id)) == ("active", {})


def test_a_launch_that_waits_comes_up_with_its_runtime(cluster: Cluster, agent: Agent) -> None:
    publish(cluster, "1", "2")
    holders = [cluster.launch(f"h{number}") for number in range(2)]
    agent.settle()
    id = cluster.launch("late", wait=True, runtime_bundle_slug="torch:1")
    apply(cluster, id, "torch", "2")  # another choice, while it waits
    assert states(cluster, id) == {"torch:2": "applying"}
    cluster.release(holders[0])
    agent.settle()
    queue.sweep(cluster.store)
    assert specified(agent, id) == ["torch:2*"]
    agent.report(agent._outcome(agent.specs[id], frozenset()))
    assert (cluster.allocation(id).state, states(cluster, id)) == ("active", {"torch:2": "applied"})


def test_one_that_waits_can_let_go_of_its_runtime(cluster: Cluster, agent: Agent) -> None:
    publish(cluster, "1")
    for number in range(2):
        cluster.launch(f"h{number}")
    id = cluster.launch("late", wait=True, runtime_bundle_slug="torch")
    assert remove(cluster, id).state == "succeeded"
    assert states(cluster, id) == {}


def test_a_launch_that_fails_ends_its_runtime_too(cluster: Cluster, agent: Agent) -> None:
    publish(cluster, "1")
    id = cluster.launch(runtime_bundle_slug="torch")
    agent.settle(failing=frozenset({"a"}))
    assert cluster.allocation(id).state == "failed"
    kinds = cluster.sql("SELECT kind, state FROM operations WHERE allocation_id = :id ORDER BY kind", id=id)
    assert [tuple(row) for row in kinds] == [("launch", "failed"), ("runtime.apply", "failed")]
    assert states(cluster, id) == {}


def test_an_unknown_runtime_refuses_the_launch(cluster: Cluster, agent: Agent) -> None:
    publish(cluster, "1")
    with pytest.raises(Problem) as refused:
        cluster.launch(runtime_bundle_slug="pytorch")
    assert refused.value.code == "unknown_runtime"
    assert cluster.sql("SELECT count(*) AS many FROM allocations")[0].many == 0


def test_specs_say_nothing_of_what_is_as_by_default(agent: Agent, machine: str) -> None:
    spec: Spec = agent.specs[machine]
    assert b"runtimes" not in msgspec.json.encode(spec)
