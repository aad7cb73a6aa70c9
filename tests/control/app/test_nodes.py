"""Joining: one token, one node, one key; and what operators do with slots."""

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from control.cluster import Cluster
from control.fleet import Agent, condition, join_token
from gpuaas.control.app import nodes, slots
from gpuaas.control.http import views
from gpuaas.control.store import nodes as rows
from gpuaas.kit.errors import Problem
from gpuaas.wire.api import SlotView
from gpuaas.wire.node import Holding, Scrub, SlotProposal, Spec


def refusal(cluster: Cluster, agent: Agent, token: str, proof: str | None = None) -> str:
    proof = proof if proof is not None else agent.sign(b"gpuaas-node-join:" + token.encode())
    with pytest.raises(Problem) as refused:
        cluster.store.transact(nodes.join, token, agent.name, agent.public_key, proof)
    return refused.value.code


def test_a_join_token_is_good_for_one_node(cluster: Cluster) -> None:
    token = cluster.store.transact(join_token)
    first = Agent(cluster.store, "node-1").join(token)
    assert refusal(cluster, Agent(cluster.store, "node-2"), token) == "bad_join_token"
    again = Agent(cluster.store, "node-1", key=first.key).join(token)
    assert again.node_id == first.node_id, "the answer was lost; the same node asks again"
    assert len(cluster.sql("SELECT * FROM nodes")) == 1


def test_a_node_proves_that_it_holds_its_key(cluster: Cluster) -> None:
    token = cluster.store.transact(join_token)
    agent, thief = Agent(cluster.store, "node-1"), Ed25519PrivateKey.generate()
    for proof in (
        thief.sign(b"gpuaas-node-join:" + token.encode()).hex(),
        agent.sign(b"gpuaas-node-join:another token"),
        agent.sign(b"gpuaas-node-link:" + token.encode()),
        "00" * 64,
        "",
    ):
        assert refusal(cluster, agent, token, proof) == "bad_signature"
    agent.join(token)


def test_an_expired_token_is_no_token(cluster: Cluster) -> None:
    user = cluster.caller.user_id
    _, token, _ = cluster.store.transact(rows.insert_join_token, user, None, True, timedelta(seconds=-1))
    assert refusal(cluster, Agent(cluster.store, "node-1"), token) == "bad_join_token"


def test_a_name_that_is_taken_leaves_the_token_unused(cluster: Cluster) -> None:
    cluster.agent("node-1", connect=False)
    token = cluster.store.transact(join_token)
    assert refusal(cluster, Agent(cluster.store, "node-1"), token) == "name_taken"
    Agent(cluster.store, "node-2").join(token)


def test_a_pool_belongs_to_its_tenant(cluster: Cluster) -> None:
    """Slots of another tenant's pool are never given out (I21)."""
    cluster.sql("INSERT INTO orgs (id, slug, name, created_at) VALUES ('og-aaaaaaaaaaaaaaaa', 'other', 'x', now())")
    cluster.agent("node-1", org="other")
    with pytest.raises(Problem) as refused:
        cluster.launch()
    assert refused.value.code == "no_capacity"
    assert [reason["code"] for reason in refused.value.extra["reasons"]] == ["other_pool"]
    cluster.agent("node-2", org="home")
    cluster.launch()


def test_only_approved_slots_are_given_out(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2, approve_slots=False)
    with pytest.raises(Problem, match="approval"):
        cluster.launch()
    cluster.store.transact(nodes.approve, cluster.caller, "node-1", ["gpu-1"])
    cluster.launch()
    (spec,) = agent.pull()
    assert spec.body is not None
    assert spec.body.slots[0].gpus == ["GPU-node-1-1"]
    with pytest.raises(Problem, match="approval"):
        cluster.launch("b")


def test_a_quarantined_slot_is_given_out_only_after_it_was_returned(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    cluster.sql("UPDATE slots SET state = 'quarantined', reason = 'scrub failed'")
    with pytest.raises(Problem, match="inspection"):
        cluster.launch()
    with pytest.raises(Problem) as refused:
        cluster.store.transact(nodes.approve, cluster.caller, "node-1", ["gpu-0"])
    assert refused.value.code == "not_in_this_state"
    cluster.store.transact(nodes.return_slot, cluster.caller, "node-1", "gpu-0")
    with pytest.raises(Problem, match="being scrubbed"):
        cluster.launch()
    agent.settle()
    cluster.launch()


def returned(cluster: Cluster, agent: Agent) -> Spec:
    """A slot whose last scrub failed is given back: what its node hears of that."""
    id = cluster.launch("first")
    agent.settle()
    cluster.release(id)
    agent.report(condition(agent.pull()[0], "gone", scrubs=[Scrub("GPU-node-1-0", clean=False, evidence="no zeros")]))
    assert [(slot.state, slot.reason) for slot in cluster.slots(agent)] == [
        ("quarantined", "scrub failed: GPU-node-1-0: no zeros")
    ]
    cluster.store.transact(nodes.return_slot, cluster.caller, "node-1", "gpu-0")
    (spec,) = agent.pull()
    return spec


def evidence(cluster: Cluster) -> list[list[dict[str, object]]]:
    return [
        row.evidence for row in cluster.sql("SELECT evidence FROM claims WHERE freed_at IS NOT NULL ORDER BY freed_at")
    ]


def test_a_returned_slot_is_free_when_its_node_has_scrubbed_it(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    spec = returned(cluster, agent)
    assert (spec.body, spec.gpus) == (None, ["GPU-node-1-0"])
    agent.report(condition(spec, "converging"))
    with pytest.raises(Problem, match="being scrubbed"):
        cluster.launch()
    agent.report(condition(spec, "gone", scrubs=[Scrub("GPU-node-1-0", clean=True, evidence="all zeros")]))
    assert evidence(cluster)[-1] == [{"gpu": "GPU-node-1-0", "clean": True, "evidence": "all zeros"}]
    id = cluster.launch()
    agent.report(condition(spec, "gone", scrubs=[Scrub("GPU-node-1-0", clean=False)]))
    agent.settle()
    assert cluster.allocation(id).state == "active", "what is said once more changes nothing"
    assert [slot.state for slot in cluster.slots(agent)] == ["approved"]


@pytest.mark.parametrize(
    ("scrubs", "why"),
    [([Scrub("GPU-node-1-0", clean=False, evidence="no zeros")], "no zeros"), ([], "gave no evidence")],
)
def test_one_that_cannot_be_scrubbed_is_quarantined_again(cluster: Cluster, scrubs: list[Scrub], why: str) -> None:
    agent = cluster.agent(gpus=1)
    spec = returned(cluster, agent)
    agent.report(condition(spec, "gone", scrubs=scrubs))
    (slot,) = cluster.slots(agent)
    assert slot.state == "quarantined"
    assert why in slot.reason
    cluster.store.transact(nodes.return_slot, cluster.caller, "node-1", "gpu-0")
    (again,) = agent.pull()
    assert again.id != spec.id, "no node takes its old answer for the new one"


def test_an_answer_that_was_lost_is_asked_for_again(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    spec = returned(cluster, agent)  # whose answer goes to a server that does not know what it means
    cluster.store.transact(slots.quarantine, cluster.caller, "node-1", "gpu-0", "it takes too long")
    cluster.store.transact(nodes.return_slot, cluster.caller, "node-1", "gpu-0")
    (again,) = agent.pull()
    assert (again.id, again.gpus) == (spec.id, spec.gpus)
    assert again.generation > spec.generation
    agent.report(condition(again, "gone", scrubs=[Scrub("GPU-node-1-0", clean=True)]))
    cluster.launch()


def test_an_agent_that_is_too_old_hears_nothing_that_it_would_refuse(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1, connect=False)
    agent.scrubs = False
    agent.connect()
    assert returned(cluster, agent).gpus == []


def test_another_node_does_not_speak_for_a_slot(cluster: Cluster) -> None:
    agent = cluster.agent("node-1", gpus=1)
    spec = returned(cluster, agent)
    other = cluster.agent("node-2", gpus=1)
    other.report(condition(spec, "gone", scrubs=[Scrub("GPU-node-1-0", clean=True)]))
    assert cluster.sql("SELECT * FROM claims WHERE state = 'scrubbing'")


def test_a_slot_that_somebody_has_is_returned_to_them(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    id = cluster.launch()
    agent.settle()
    cluster.sql("UPDATE slots SET state = 'quarantined', reason = 'it hums'")
    cluster.store.transact(nodes.return_slot, cluster.caller, "node-1", "gpu-0")
    assert agent.pull() == []
    assert cluster.allocation(id).state == "active"


@pytest.mark.parametrize("gone", [False, True])
def test_a_scrub_that_a_restored_database_does_not_know_sets_its_slot_aside(cluster: Cluster, gone: bool) -> None:
    agent = cluster.agent(gpus=2)
    dirty = ["GPU-node-1-0"] if gone else []
    agent.report(unknown=[Holding("sc-" + "a" * 16, 1, 1, 0, [], gone=gone, dirty=dirty, gpus=["GPU-node-1-0"])])
    assert [slot.state for slot in cluster.slots(agent)] == ["quarantined", "approved"]
    assert cluster.sql("SELECT * FROM strays") == [], "it is no machine"


def test_a_scrub_that_is_known_is_no_drift(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    spec = returned(cluster, agent)
    agent.report(unknown=[Holding(spec.id, 1, 1, 0, [], gpus=spec.gpus)])
    assert [slot.state for slot in cluster.slots(agent)] == ["approved"]


def shown(cluster: Cluster) -> SlotView:
    """As operators see it."""
    (slot,) = views.node(*cluster.store.transact(nodes.show_node, cluster.caller, "node-1")).slots
    return slot


def test_operators_see_the_last_scrub(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=1)
    assert (shown(cluster).last_scrub, shown(cluster).scrubbing) == (None, False)
    spec = returned(cluster, agent)
    (machine,) = cluster.sql("SELECT id FROM allocations")
    slot = shown(cluster)
    assert (slot.scrubbing, slot.allocation_id) == (True, None), "a scrub is no machine"
    assert slot.last_scrub is not None
    assert (slot.last_scrub.clean, slot.last_scrub.allocation_id) == (False, machine.id)
    agent.report(condition(spec, "gone", scrubs=[Scrub("GPU-node-1-0", clean=True, evidence="all zeros")]))
    slot = shown(cluster)
    assert slot.last_scrub is not None
    assert (slot.scrubbing, slot.last_scrub.clean, slot.last_scrub.allocation_id) == (False, True, None)
    assert [(each.gpu, each.evidence) for each in slot.last_scrub.gpus] == [("GPU-node-1-0", "all zeros")]
    id = cluster.launch()
    cluster.release(id)  # before its node has heard of it: nothing was there, and nothing was scrubbed
    agent.report(condition(agent.pull()[0], "gone"))
    assert shown(cluster).last_scrub == slot.last_scrub


@pytest.mark.parametrize("approve_slots", [True, False])
def test_a_slot_in_another_shape_makes_no_gpu_clean(cluster: Cluster, approve_slots: bool) -> None:
    agent = cluster.agent(gpus=1, approve_slots=True)
    cluster.sql("UPDATE nodes SET approve_slots = :yes", yes=approve_slots)
    id = cluster.launch("first")
    agent.settle()
    cluster.release(id)
    agent.report(condition(agent.pull()[0], "gone", scrubs=[Scrub("GPU-node-1-0", clean=False, evidence="no zeros")]))
    more = [SlotProposal("gpu-0", ["GPU-node-1-0"], 8, 8192)]  # of everything: the old slot goes, a new one comes
    agent.report(inventory=agent.inventory(slots=more))
    if not approve_slots:
        cluster.store.transact(nodes.approve, cluster.caller, "node-1", [])
    with pytest.raises(Problem, match="being scrubbed"):
        cluster.launch()
    (spec,) = agent.pull()
    assert spec.gpus == ["GPU-node-1-0"]
    agent.report(condition(spec, "gone", scrubs=[Scrub("GPU-node-1-0", clean=True, evidence="all zeros")]))
    cluster.launch()
