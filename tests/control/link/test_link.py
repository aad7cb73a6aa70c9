"""The server's side of the node link: who is let in, and that what is stale, foreign or unknown changes nothing."""

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from control.cluster import Cluster
from control.fleet import Agent, condition
from gpuaas.control.link import session as link
from gpuaas.kit.ids import Ids
from gpuaas.wire.node import (
    MAX_REPORT_BYTES,
    MAX_SPEC_BYTES,
    Ack,
    Fact,
    Failure,
    Fenced,
    Heartbeat,
    Report,
    StepReport,
    Welcome,
    encode,
    from_agent,
)


def fact(sequence: int = 1, **data: str) -> Fact:
    return Fact(sequence, "login", Ids().new("al"), 1_700_000_000.0, data)


def heartbeat(agent: Agent, revision: int | None = None, store_id: str | None = None) -> Heartbeat:
    assert agent.session is not None
    agent.seq += 1
    known = agent.revision if revision is None else revision
    return Heartbeat(agent.seq, agent.session.epoch, store_id or agent.store_id or "", known)


def test_only_the_holder_of_the_key_is_welcome(cluster: Cluster) -> None:
    agent = cluster.agent(connect=False)
    thief = Ed25519PrivateKey.generate()
    for changes in (
        {"signature": thief.sign(b"gpuaas-node-link:" + b"5e" * 32).hex()},
        {"signature": agent.sign(b"gpuaas-node-link:another nonce")},  # a replayed one
        {"signature": agent.sign(b"5e" * 32)},  # made for something else
        {"signature": "not hex"},
        {"signature": ""},
        {"node_id": Ids().new("nd")},
        {"protocol": 2},
    ):
        assert isinstance(agent.greet(**changes), Fenced), changes
    assert cluster.node(agent).epoch == 0
    assert isinstance(agent.greet(), Welcome)
    assert cluster.node(agent).epoch == 1


def test_a_removed_node_is_not_let_in_again(cluster: Cluster) -> None:
    agent = cluster.agent()
    cluster.sql("UPDATE nodes SET state = 'removed'")
    assert isinstance(agent.send(heartbeat(agent))[0], Fenced)
    assert isinstance(agent.greet(), Fenced)


def test_a_newer_connection_fences_the_older_one(cluster: Cluster) -> None:
    """Two agents with one identity: the older one can say nothing any more."""
    agent = cluster.agent()
    id = cluster.launch()
    (spec,) = agent.pull()
    older = agent.session
    agent.connect()
    newer, agent.session = agent.session, older
    assert isinstance(agent.send(heartbeat(agent))[0], Fenced)
    assert isinstance(agent.report(condition(spec, "ready"))[0], Fenced)
    assert isinstance(agent.hold([])[0], Fenced)
    assert agent.pull() == []
    assert cluster.allocation(id).state == "provisioning"
    agent.session = newer
    assert agent.report(condition(spec, "ready")) == [Ack(agent.seq)]
    assert cluster.allocation(id).state == "active"


def test_a_frame_of_another_epoch_on_a_live_session_is_fenced(cluster: Cluster) -> None:
    agent = cluster.agent()
    assert agent.session is not None
    assert isinstance(agent.send(Report(9, agent.session.epoch - 1))[0], Fenced)
    assert isinstance(agent.send(Report(9, agent.session.epoch + 1))[0], Fenced)


def test_nothing_is_specified_before_a_node_has_said_what_it_holds(cluster: Cluster) -> None:
    agent = cluster.agent(connect=False)
    welcome = agent.greet()
    assert isinstance(welcome, Welcome)
    assert not welcome.synced
    agent.store_id = welcome.store_id
    assert isinstance(agent.report()[0], Fenced)
    assert cluster.node(agent).state == "joined"
    assert agent.hold([], final=False) == [Ack(agent.seq)]
    assert cluster.node(agent).state == "joined"
    assert agent.hold([]) == [Ack(agent.seq)]
    assert cluster.node(agent).state == "ready"
    cluster.launch()
    assert len(agent.pull()) == 1
    again = agent.greet()
    assert isinstance(again, Welcome)
    assert again.synced


def test_a_node_of_another_store_must_say_what_it_holds_again(cluster: Cluster) -> None:
    agent = cluster.agent()
    agent.store_id = Ids().new("st")
    welcome = agent.greet()
    assert isinstance(welcome, Welcome)
    assert not welcome.synced
    assert cluster.node(agent).state == "joined"
    assert isinstance(agent.send(heartbeat(agent))[0], Fenced)


def test_old_reports_change_nothing(cluster: Cluster) -> None:
    """Doubled, late and out of order: only the newest counts."""
    agent = cluster.agent()
    id = cluster.launch()
    (spec,) = agent.pull()
    agent.report(condition(spec, "converging"))
    late = Report(agent.seq + 1, agent.session.epoch, [condition(spec, "failed", failure=Failure("x", "x"))])  # type: ignore[union-attr]
    agent.seq += 1
    agent.report(condition(spec, "ready"))
    before = cluster.allocation(id)
    assert before.state == "active"
    agent.send(late)
    agent.send(late)
    agent.send(Report(agent.seq, agent.session.epoch, [condition(spec, "failed")]))  # type: ignore[union-attr]
    assert cluster.allocation(id) == before
    wrong = msgspec.structs.replace
    for stale in (wrong(spec, incarnation=2), wrong(spec, generation=2), wrong(spec, generation=0)):
        agent.report(condition(stale, "failed"))
        assert cluster.allocation(id).state == "active", stale


def test_a_report_on_an_older_generation_is_not_an_answer_to_a_newer_one(cluster: Cluster) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    (before,) = agent.specs.values()
    cluster.restart(id)
    agent.report(condition(before, "ready"))
    assert cluster.allocation(id).state == "restarting"
    assert cluster.operation(id).state == "running"
    agent.settle()
    assert cluster.allocation(id).state == "active"
    assert cluster.operation(id).state == "succeeded"


def test_a_node_cannot_speak_for_the_machines_of_another(cluster: Cluster) -> None:
    """T40: forged readiness, failure, disappearance and holdings of node 1, said by node 2."""
    first = cluster.agent("node-1", gpus=1)
    id = cluster.launch()
    (spec,) = first.pull()
    second = cluster.agent("node-2", gpus=1)
    for state in ("converging", "ready", "failed", "gone"):
        before = cluster.allocation(id)
        second.report(condition(spec, state))
        assert cluster.allocation(id) == before, state
    assert second.pull() == []
    second.report(facts=[msgspec.structs.replace(fact(), object_id=id)])
    told = cluster.sql("SELECT type FROM events WHERE type LIKE 'fact.%'")
    assert told == []
    first.report(condition(spec, "ready"))
    assert cluster.allocation(id).state == "active"


def test_facts_are_counted_once_whoever_brings_them(cluster: Cluster) -> None:
    agent = cluster.agent()
    older = agent.session
    agent.report(facts=[fact(1, n="1"), fact(2, n="2")])
    agent.connect()
    agent.session = older
    answers = agent.report(facts=[fact(2, n="doubled"), fact(3, n="3")])
    assert isinstance(answers[0], Fenced)
    rows = cluster.sql("SELECT sequence, data FROM facts ORDER BY sequence")
    assert [(row.sequence, row.data["n"]) for row in rows] == [(1, "1"), (2, "2"), (3, "3")]


@pytest.mark.parametrize("name", ["self", "type", "org_id", "project_id", "kind", "id", "name", "actor", "x" * 500])
def test_a_fact_may_call_its_data_anything(cluster: Cluster, name: str) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    about = msgspec.structs.replace(fact(1, **{name: "forged"}), object_id=id)
    assert agent.report(facts=[about]) == [Ack(agent.seq)]
    rows = cluster.sql("SELECT * FROM events WHERE type = 'fact.login'")
    for row in rows:
        assert (row.project_id, row.object_id, row.actor) == (cluster.project.id, id, "system")


def test_text_with_nul_does_not_poison_a_report(cluster: Cluster) -> None:
    """PostgreSQL cannot keep NUL. What a tenant's process printed must not silence its node for ever."""
    agent = cluster.agent()
    id = cluster.launch()
    (spec,) = agent.pull()
    assert agent.session is not None
    step = StepReport("rootfs", "failed", message="a\x00b", log="c\x00d\\u0000")
    bad = condition(spec, "failed", steps=[step], failure=Failure("x", "e\x00f"))
    frame = from_agent(encode(Report(7, agent.session.epoch, [bad], [fact(1, k="g\x00h")])))
    assert agent.send(frame) == [Ack(7)]
    assert cluster.allocation(id).failure_message == "e\ufffdf"
    assert len(cluster.sql("SELECT * FROM facts")) == 1


def test_a_frame_has_a_limit() -> None:
    report = encode(Report(1, 1, facts=[fact(n, text="x" * 1000) for n in range(70)]))
    assert len(report) > MAX_REPORT_BYTES
    with pytest.raises(msgspec.ValidationError, match="at most"):
        from_agent(report)
    with pytest.raises(msgspec.ValidationError):
        from_agent(b'{"type":"report","seq":1,"epoch":1,"surprise":1}')
    with pytest.raises(msgspec.ValidationError):
        from_agent(b'{"type":"report","seq":-1,"epoch":1}')


def test_specs_are_sent_in_order_and_in_frames_of_a_limited_size(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=40)
    ids = [cluster.launch(f"m{n}") for n in range(40)]
    frames, revision = [], agent.revision
    while frame := cluster.store.transact(link.outgoing, agent.session, revision):
        assert frame.base == revision
        assert len(encode(frame)) <= MAX_SPEC_BYTES + 4096
        frames.append(frame)
        revision = frame.upto
    assert len(frames) == 2
    assert [spec.id for frame in frames for spec in frame.specs] == ids
    assert revision == cluster.node(agent).revision
