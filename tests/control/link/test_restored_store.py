"""A database restored from an older copy, and nodes that hold more than it remembers: nothing is ever destroyed."""

import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

import databases
from control.cluster import Cluster
from control.fleet import Agent, condition
from gpuaas.control.store import stores
from gpuaas.control.store.embedded import Embedded
from gpuaas.control.store.transaction import Store, connect
from gpuaas.control.sweeps import lost_nodes
from gpuaas.kit.clock import SystemClock
from gpuaas.kit.ids import Ids
from gpuaas.wire.node import Ack, Fenced, Heartbeat, Holding, Spec, Welcome


def holding(spec: Spec, generation: int | None = None, restarts: int = 0, gone: bool = False) -> Holding:
    slots = [slot.id for slot in spec.body.slots] if spec.body else []
    return Holding(spec.id, spec.incarnation, generation or spec.generation, restarts, slots, gone)


@pytest.fixture
def running(cluster: Cluster) -> tuple[Cluster, Agent, str, Spec]:
    """One machine, active on one node."""
    agent = cluster.agent()
    id = cluster.launch()
    agent.settle()
    return cluster, agent, id, agent.specs[id]


def forget(cluster: Cluster) -> None:
    """As if the database had been restored: the node has seen revisions that it does not know."""
    cluster.sql("UPDATE nodes SET revision = revision - 1")


AN_HOUR_ON = "UPDATE nodes SET last_seen_at = last_seen_at + interval '1 hour'"  # it was heard all the time


class Later(SystemClock):
    def __init__(self, hours: int) -> None:
        self._more = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._more


@pytest.fixture
def restored(postgres: Embedded, database_url: str) -> Iterator[Callable[[Cluster], Callable[[], None]]]:
    """Makes a copy; what that gives goes on with it, three hours later."""
    name = f"test_{uuid.uuid4().hex[:16]}"

    def back_up(cluster: Cluster) -> Callable[[], None]:
        cluster.store.engine.dispose()
        copy = databases.clone(postgres.admin_url, database_url.rpartition("/")[2].partition("?")[0], name)

        def restore() -> None:
            cluster.store.engine.dispose()
            cluster.store = Store(connect(copy, pool_size=4), clock=Later(hours=3))
            cluster.store.transact(stores.ensure)

        return restore

    yield back_up
    databases.drop(postgres.admin_url, name)


def counted(cluster: Cluster, id: str) -> list[tuple[datetime, datetime | None]]:
    rows = cluster.sql("SELECT started_at, ended_at FROM usage WHERE resource_id = :id ORDER BY started_at", id=id)
    return [(row.started_at, row.ended_at) for row in rows if row.started_at != row.ended_at]


def store_id(cluster: Cluster) -> str:
    return str(cluster.sql("SELECT id FROM store")[0].id)


def test_a_revision_from_the_future_gives_the_store_a_new_id(running: tuple[Cluster, Agent, str, Spec]) -> None:
    cluster, agent, id, spec = running
    bystander = cluster.agent("node-2")
    before = store_id(cluster)
    forget(cluster)
    assert agent.session is not None
    beat = Heartbeat(99, agent.session.epoch, before, agent.revision)
    assert isinstance(agent.send(beat)[0], Fenced), "it must say hello again"
    welcome = agent.greet()
    assert isinstance(welcome, Welcome)
    assert welcome.store_id == store_id(cluster) != before
    assert not welcome.synced
    assert {cluster.node(agent).state, cluster.node(bystander).state} == {"joined"}, "every node must tell"
    assert cluster.allocation(id).state == "active"
    agent.store_id = welcome.store_id
    assert agent.hold([holding(spec)]) == [Ack(agent.seq)]
    assert cluster.node(agent).state == "ready"
    assert cluster.node(bystander).state == "joined"


def test_an_older_copy_numbers_its_specs_after_what_the_node_has_seen(
    running: tuple[Cluster, Agent, str, Spec],
) -> None:
    """The copy remembers generation 1; the node has carried out 7, with two restarts."""
    cluster, agent, id, spec = running
    forget(cluster)
    agent.connect([holding(spec, generation=7, restarts=2)])
    after = cluster.allocation(id)
    assert (after.generation, after.restarts, after.state) == (8, 2, "active")
    (sent,) = agent.pull()
    assert (sent.id, sent.generation) == (id, 8)
    assert sent.body is not None
    assert sent.body.restarts == 2, "a smaller counter must not look like news"
    agent.report(condition(sent, "ready"))
    assert cluster.allocation(id).observed == 8
    cluster.restart(id)
    agent.settle()
    assert cluster.allocation(id).restarts == 3
    assert cluster.allocation(id).state == "active"


def test_an_open_operation_waits_for_the_new_number(cluster: Cluster) -> None:
    agent = cluster.agent()
    id = cluster.launch()
    (spec,) = agent.pull()
    forget(cluster)
    agent.connect([holding(spec, generation=5)])
    assert cluster.operation(id).generation == 6
    agent.settle()
    assert cluster.operation(id).state == "succeeded"
    assert cluster.allocation(id).state == "active"


def test_what_the_store_does_not_know_is_kept_and_its_slots_set_aside(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    slot, free = cluster.slots(agent)
    stranger = Holding(Ids().new("al"), 1, 3, 0, [slot.id])
    assert agent.report(unknown=[stranger]) == [Ack(agent.seq)]
    assert {s.id: s.state for s in cluster.slots(agent)} == {slot.id: "quarantined", free.id: "approved"}
    assert stranger.id in cluster.slots(agent)[0].reason
    assert agent.pull() == [], "no tombstone: nothing is deleted on a guess"
    said = cluster.sql("SELECT * FROM audit WHERE action = 'slot.quarantined'")
    assert len(said) == 1
    agent.report(unknown=[stranger])
    assert len(cluster.sql("SELECT * FROM audit WHERE action = 'slot.quarantined'")) == 1, "told once"
    cluster.launch("takes-the-free-one")
    (spec,) = agent.pull()
    assert spec.body is not None
    assert [held.id for held in spec.body.slots] == [free.id]


def test_what_the_store_does_not_know_sets_its_gpus_aside_whatever_their_slots_are_called_now(cluster: Cluster) -> None:
    agent = cluster.agent(gpus=2)
    slot, free = cluster.slots(agent)
    agent.report(unknown=[Holding(Ids().new("al"), 1, 3, 0, [Ids().new("sl")], gpus=list(slot.gpus))])
    assert {s.id: s.state for s in cluster.slots(agent)} == {slot.id: "quarantined", free.id: "approved"}


def test_a_node_cannot_set_aside_the_slots_of_another(cluster: Cluster) -> None:
    victim, attacker = cluster.agent("node-1"), cluster.agent("node-2")
    theirs = [slot.id for slot in cluster.slots(victim)]
    attacker.report(unknown=[Holding(Ids().new("al"), 1, 1, 0, theirs)])
    assert {slot.state for slot in cluster.slots(victim)} == {"approved"}


def test_a_machine_that_another_node_holds_is_not_moved_there(running: tuple[Cluster, Agent, str, Spec]) -> None:
    cluster, _, id, spec = running
    other = cluster.agent("node-2")
    before = cluster.allocation(id)
    other.report(unknown=[holding(spec, generation=9)])
    other.report(unknown=[holding(spec, generation=9, gone=True)])
    assert cluster.allocation(id) == before


def test_a_machine_that_is_gone_on_the_node_is_released_here(running: tuple[Cluster, Agent, str, Spec]) -> None:
    """The copy thinks it runs, but the node has carried out a tombstone meanwhile."""
    cluster, agent, id, spec = running
    forget(cluster)
    agent.connect([holding(spec, generation=2, gone=True)])
    after = cluster.allocation(id)
    assert after.state == "released"
    assert after.reaped_at is not None
    assert cluster.sql("SELECT * FROM claims WHERE state <> 'freed'") == []
    assert cluster.sql("SELECT * FROM usage WHERE ended_at IS NULL") == []
    agent.settle()
    cluster.launch("next")
    agent.settle()


@pytest.mark.parametrize("noticed", [False, True])
def test_what_was_released_since_is_charged_until_the_copy_was_made(
    running: tuple[Cluster, Agent, str, Spec], restored: Callable[[Cluster], Callable[[], None]], noticed: bool
) -> None:
    """Whether the restored servers had given its node up before it was heard (`noticed`) or not."""
    cluster, agent, id, spec = running
    other = cluster.launch("other")
    agent.settle()
    cluster.sql(AN_HOUR_ON)
    known_until, (began, _) = cluster.node(agent).last_seen_at, counted(cluster, id)[0]
    restore = restored(cluster)
    cluster.release(id)
    agent.settle()
    restore()
    assert counted(cluster, id) == [(began, None)]
    if noticed:
        cluster.store.since -= timedelta(minutes=1)
        lost_nodes.sweep(cluster.store)
        assert (cluster.node(agent).state, cluster.allocation(id).state) == ("lost", "unreachable")
    agent.store = cluster.store
    agent.connect([holding(spec, generation=2, gone=True), holding(agent.specs[other])])
    assert cluster.allocation(id).state == "released"
    assert counted(cluster, id) == [(began, known_until)]
    lost_nodes.sweep(cluster.store)
    assert (cluster.node(agent).state, cluster.allocation(other).state) == ("ready", "active")


def test_what_is_counted_ends_when_its_node_never_comes_back_to_a_restored_database(
    running: tuple[Cluster, Agent, str, Spec], restored: Callable[[Cluster], Callable[[], None]]
) -> None:
    cluster, agent, id, _ = running
    cluster.sql(AN_HOUR_ON)
    known_until, (began, _) = cluster.node(agent).last_seen_at, counted(cluster, id)[0]
    restored(cluster)()
    cluster.store.since -= timedelta(minutes=1)
    lost_nodes.sweep(cluster.store)
    assert counted(cluster, id) == [(began, known_until)]


def test_a_machine_that_the_node_lost_is_specified_again(running: tuple[Cluster, Agent, str, Spec]) -> None:
    """A node that was installed anew holds nothing: it gets everything from the beginning."""
    _, agent, id, _ = running
    agent.store_id, agent.revision, agent.specs = None, 0, {}
    agent.connect([])
    assert [spec.id for spec in agent.pull()] == [id]


def test_saying_it_twice_changes_nothing(running: tuple[Cluster, Agent, str, Spec]) -> None:
    cluster, agent, id, spec = running
    forget(cluster)
    agent.connect([holding(spec, generation=7)])
    once = cluster.allocation(id)
    assert agent.hold([holding(spec, generation=7)]) == [Ack(agent.seq)], "the answer was lost"
    assert cluster.allocation(id) == once


def test_a_queued_machine_that_the_node_has_deleted_before_is_launched_anew(cluster: Cluster) -> None:
    """It was placed and released in a future that the copy does not remember; then the copy places it there again."""
    agent = cluster.agent()
    id = cluster.launch()
    (spec,) = agent.pull()
    agent.report(condition(spec, "gone"))
    assert cluster.allocation(id).state == "provisioning"
    (again,) = agent.pull()
    assert (again.id, again.body) == (id, spec.body)
    assert (again.incarnation, again.generation) == (spec.incarnation + 1, spec.generation + 1)
    agent.report(condition(spec, "gone"))  # said again; about what is no longer meant
    assert agent.pull() == []
    agent.report(condition(again, "ready"))
    assert cluster.allocation(id).state == "active"
    assert cluster.operation(id).state == "succeeded"


def test_the_seat_of_a_machine_that_the_store_does_not_know_is_given_to_nobody(cluster: Cluster) -> None:
    """Its SSH port and its user ids are in use on the node: a second machine there could not come up."""
    agent = cluster.agent(gpus=2)
    slot = cluster.slots(agent)[0]
    stranger = Holding(Ids().new("al"), 1, 3, 0, [slot.id], seat=0)
    agent.report(unknown=[stranger])
    id = cluster.launch("beside-it")
    assert cluster.allocation(id).seat == 1
    agent.settle()
    cluster.release(id)
    agent.settle()
    agent.report(unknown=[Holding(stranger.id, 1, 4, 0, [slot.id], gone=True)])
    assert cluster.allocation(cluster.launch("after-it")).seat == 0
