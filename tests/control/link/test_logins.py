"""Who was logged in, from what nodes tell: once each, in any order, and nobody stays on a machine that has ended."""

from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest

from control.cluster import Cluster
from control.fleet import Agent, condition
from gpuaas.control.app import machine_access
from gpuaas.kit.ids import Ids
from gpuaas.wire.node import Fact, Report

T0 = 1_700_000_000.0


@pytest.fixture
def machine(cluster: Cluster) -> tuple[Cluster, Agent, str]:
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    return cluster, agent, id


def opened(cluster: Cluster, id: str, sequence: int, session: str = "s1", at: float = T0, **data: str) -> Fact:
    said = {"user_id": cluster.caller.user_id, "fingerprint": "SHA256:x", "source": "192.0.2.7", **data}
    return Fact(sequence, "session.opened", id, at, {"session": session, **said})


def closed(id: str, sequence: int, session: str = "s1", at: float = T0 + 60) -> Fact:
    return Fact(sequence, "session.closed", id, at, {"session": session, "reason": "it ended"})


def rows(cluster: Cluster) -> list[Any]:
    return cluster.sql("SELECT * FROM sessions ORDER BY session")


def feed(cluster: Cluster) -> list[tuple[str, Any]]:
    told = cluster.sql("SELECT type, data FROM events WHERE type LIKE 'fact.%' ORDER BY seq")
    return [(row.type, row.data.get("user")) for row in told]


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_login_is_on_record_with_the_person_and_in_the_feed(machine: tuple[Cluster, Agent, str]) -> None:
    cluster, agent, id = machine
    agent.report(facts=[opened(cluster, id, 1)])
    ((login, user),) = cluster.store.transact(machine_access.list_sessions, cluster.caller, "a", None, 10)
    assert (login.session, login.user_id, user) == ("s1", cluster.caller.user_id, "root@example.org")
    assert (login.fingerprint, login.source, login.opened_at) == ("SHA256:x", "192.0.2.7", moment(T0))
    assert (login.closed_at, login.close_reason) == (None, None)
    agent.report(facts=[closed(id, 2)])
    ((login, user),) = cluster.store.transact(machine_access.list_sessions, cluster.caller, "a", None, 10)
    assert (login.closed_at, login.close_reason, user) == (moment(T0 + 60), "it ended", "root@example.org")
    assert feed(cluster) == [
        ("fact.session.opened", "root@example.org"),
        ("fact.session.closed", "root@example.org"),
    ]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_order_and_repetition_change_nothing(machine: tuple[Cluster, Agent, str], order: tuple[int, ...]) -> None:
    """Two sessions; the second is ended by a reboot, of which the node says nothing but that the machine exited."""
    cluster, agent, id = machine
    exited = Fact(4, "exited", id, T0 + 90, {"reason": "reboot", "death": "1"})
    facts = [opened(cluster, id, 1), closed(id, 2), opened(cluster, id, 3, "s2", T0 + 30), exited]
    for number in order:
        agent.report(facts=[facts[number]])
    agent.report(facts=facts)
    agent.journal = Ids().new("jn")  # a journal that was lost tells everything again, under other numbers
    agent.connect()
    agent.report(facts=facts)
    first, second = rows(cluster)
    assert (first.opened_at, first.closed_at, first.close_reason) == (moment(T0), moment(T0 + 60), "it ended")
    assert (second.opened_at, second.closed_at) == (moment(T0 + 30), moment(T0 + 90))
    assert second.close_reason == "the node was rebooted"
    assert {row.user_id for row in (first, second)} == {cluster.caller.user_id}
    sessions = [type for type, _ in feed(cluster) if type.startswith("fact.session")]
    assert sorted(sessions) == ["fact.session.closed", "fact.session.opened", "fact.session.opened"]


@pytest.mark.parametrize(("kind", "reason"), [("exited", "died"), ("exited", "reboot"), ("rebooted", "")])
def test_the_end_of_the_machine_ends_what_was_before_and_nothing_after(
    machine: tuple[Cluster, Agent, str], kind: str, reason: str
) -> None:
    cluster, agent, id = machine
    ended = Fact(2, kind, id, T0 + 5, {"reason": reason})
    agent.report(facts=[opened(cluster, id, 1, "s1", T0), ended, opened(cluster, id, 3, "s2", T0 + 6)])
    assert [row.closed_at for row in rows(cluster)] == [moment(T0 + 5), None]


@pytest.mark.parametrize("late", [False, True])
def test_nobody_stays_on_a_machine_that_was_reaped(machine: tuple[Cluster, Agent, str], late: bool) -> None:
    """Also when the node's clock is ahead of ours, or its word comes late."""
    cluster, agent, id = machine
    future = opened(cluster, id, 1, at=T0 * 2)
    if not late:
        agent.report(facts=[future])
        assert rows(cluster)[0].closed_at is None
    cluster.release(id)
    agent.settle()
    if late:
        agent.report(facts=[future])
    (row,) = rows(cluster)
    assert row.close_reason == "the machine was released"
    assert row.closed_at == cluster.allocation(id).reaped_at


@pytest.mark.parametrize("who", ["", "us-aaaaaaaaaaaaaaaa", "root@example.org", "x" * 5000])
def test_somebody_unknown_keeps_only_the_fingerprint(machine: tuple[Cluster, Agent, str], who: str) -> None:
    cluster, agent, id = machine
    agent.report(facts=[opened(cluster, id, 1, user_id=who, user="forged@example.org")])
    (row,) = rows(cluster)
    assert (row.user_id, row.fingerprint) == (None, "SHA256:x")
    assert feed(cluster) == [("fact.session.opened", None)]


@pytest.mark.parametrize("session", ["", " ", "a b", "s\n", "|", "-x", "x" * 65])
def test_a_session_without_a_usable_name_is_a_fact_and_no_more(
    machine: tuple[Cluster, Agent, str], session: str
) -> None:
    cluster, agent, id = machine
    agent.report(facts=[opened(cluster, id, 1, session)])
    assert rows(cluster) == []
    assert len(cluster.sql("SELECT * FROM facts")) == 1


def test_a_node_tells_only_of_its_own_machines(machine: tuple[Cluster, Agent, str]) -> None:
    cluster, _, id = machine
    other = cluster.agent("node-2")
    other.report(facts=[opened(cluster, id, 1), Fact(2, "exited", id, T0 + 5, {})])
    assert rows(cluster) == []
    assert feed(cluster) == []


def test_what_was_told_by_a_fenced_connection_counts(machine: tuple[Cluster, Agent, str]) -> None:
    cluster, agent, id = machine
    older = agent.session
    agent.connect()
    agent.session = older
    assert older is not None
    agent.send(Report(99, older.epoch, [condition(agent.specs[id], "ready")], [opened(cluster, id, 1)]))
    assert [row.session for row in rows(cluster)] == ["s1"]


@pytest.mark.parametrize("jump", [-86400.0, -3600.0, 3600.0, 86400.0])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_the_journal_counts_and_not_a_clock_that_jumps(
    machine: tuple[Cluster, Agent, str], order: tuple[int, ...], jump: float
) -> None:
    """Somebody is there, the node's clock is set, the machine dies and comes back, somebody else comes."""
    cluster, agent, id = machine
    facts = [
        opened(cluster, id, 1, "before"),
        Fact(2, "exited", id, T0 + 60 + jump, {"death": "1", "reason": "died"}),
        opened(cluster, id, 3, "after", at=T0 + 120 - jump),
    ]
    for index in order:
        agent.report(facts=[facts[index]])
    assert {row.session: row.closed_at is not None for row in rows(cluster)} == {"before": True, "after": False}
