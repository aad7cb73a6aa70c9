"""Heartbeats of many nodes in one transaction. What means more than "still there" is left to be looked at alone."""

import asyncio
from datetime import timedelta

import pytest

from control.cluster import Cluster
from control.fleet import Agent
from gpuaas.control.link import session as link
from gpuaas.control.link.pulse import PATIENCE_SECONDS, Pulse
from gpuaas.control.link.session import Session
from gpuaas.control.store import nodes
from gpuaas.kit.errors import Stale
from gpuaas.wire.node import Ack, Heartbeat


def beat(agent: Agent, **changes: object) -> tuple[Session, Heartbeat]:
    assert agent.session is not None
    said = {"seq": 99, "epoch": agent.session.epoch, "store_id": agent.store_id or "", "revision": agent.revision}
    return agent.session, Heartbeat(**{**said, **changes})  # type: ignore[arg-type]


def heard(cluster: Cluster, *beats: tuple[Session, Heartbeat]) -> dict[str, int | None]:
    return cluster.store.transact(link.heartbeats, list(beats))


def test_all_are_seen_together_and_told_their_newest_revision(cluster: Cluster) -> None:
    agents = [cluster.agent(f"node-{n}") for n in range(3)]
    cluster.launch()
    cluster.sql("UPDATE nodes SET last_seen_at = last_seen_at - interval '1 hour'")
    now = cluster.store.clock.now()
    found = heard(cluster, *(beat(agent, at=now.timestamp() + 100) for agent in agents))
    assert found == {agent.node_id: cluster.node(agent).revision for agent in agents}
    assert sorted(number for number in found.values() if number is not None) == [0, 0, 1]
    for agent in agents:
        seen = cluster.node(agent).last_seen_at
        assert seen is not None
        assert now - seen < timedelta(minutes=1)
    skews = cluster.store.transact(lambda tx: tx.run("SELECT clock_skew_seconds FROM nodes").fetchall())
    assert all(95 < skew < 105 for (skew,) in skews)


def test_whoever_is_not_as_before_is_looked_at_alone(cluster: Cluster) -> None:
    agents = [cluster.agent(f"node-{n}") for n in range(7)]
    same, fenced, ahead, other_store, lost, removed, unsynced = agents
    cluster.sql(f"UPDATE nodes SET state = 'lost' WHERE id = '{lost.node_id}'")
    cluster.sql(f"UPDATE nodes SET state = 'removed' WHERE id = '{removed.node_id}'")
    cluster.sql(f"UPDATE nodes SET synced_store_id = NULL WHERE id = '{unsynced.node_id}'")
    older = beat(fenced)
    fenced.connect()
    beats = [beat(same), older, beat(ahead, revision=5), beat(other_store, store_id="st-aaaaaaaaaaaaaaaa")]
    beats += [beat(lost), beat(removed), beat(unsynced)]
    assert list(heard(cluster, *beats)) == [same.node_id]
    assert lost.send(beat(lost)[1]) == [Ack(99, link.LEASE_SECONDS)]
    assert cluster.node(lost).state == "ready"


def test_a_frame_of_another_epoch_counts_for_nobody(cluster: Cluster) -> None:
    agent = cluster.agent()
    assert agent.session is not None
    older = agent.session
    agent.connect()
    assert heard(cluster, (older, beat(agent)[1])) == {}


def test_a_node_that_somebody_works_on_is_not_waited_for(cluster: Cluster) -> None:
    busy, idle = cluster.agent("busy"), cluster.agent("idle")

    def work(tx: nodes.Tx) -> dict[str, int | None]:
        nodes.node(tx, busy.node_id, lock=True)
        return heard(cluster, beat(busy), beat(idle))

    assert cluster.store.transact(work) == {busy.node_id: None, idle.node_id: 0}


class Busy:
    """A store in which somebody works on a node, so many times that it is asked."""

    def __init__(self, times: float) -> None:
        self.left = times
        self.batches: list[list[str]] = []

    def transact(self, act: object, frames: list[tuple[Session, Heartbeat]]) -> dict[str, int | None]:
        self.batches.append([session.node_id for session, _ in frames])
        self.left -= 1
        return {
            session.node_id: None if session.node_id == "nd-busy" and self.left >= 0 else 5 for session, _ in frames
        }


def test_a_node_that_somebody_works_on_is_tried_again_with_the_next_ones() -> None:
    async def beats() -> None:
        store = Busy(3)
        pulse = Pulse(store)  # type: ignore[arg-type]
        busy = asyncio.create_task(pulse.beat(Session("nd-busy", 1, "jn"), Heartbeat(1, 1, "st", 1)))
        assert await pulse.beat(Session("nd-idle", 1, "jn"), Heartbeat(1, 1, "st", 1)) == 5
        assert not busy.done()
        assert await busy == 5
        assert [len(batch) for batch in store.batches] == [2, 1, 1, 1]

    asyncio.run(beats())


def test_whoever_is_worked_on_for_long_is_left_to_its_own_connection() -> None:
    async def beats() -> None:
        store = Busy(float("inf"))
        pulse = Pulse(store)  # type: ignore[arg-type]
        began = asyncio.get_running_loop().time()
        assert await pulse.beat(Session("nd-busy", 1, "jn"), Heartbeat(1, 1, "st", 1)) is None
        assert asyncio.get_running_loop().time() - began >= PATIENCE_SECONDS
        gone = asyncio.create_task(pulse.beat(Session("nd-busy", 1, "jn"), Heartbeat(1, 1, "st", 1)))
        await asyncio.sleep(0)
        gone.cancel()  # its connection ended
        asked = len(store.batches)
        assert await pulse.beat(Session("nd-idle", 1, "jn"), Heartbeat(1, 1, "st", 1)) == 5
        assert len(store.batches) <= asked + 2

    asyncio.run(beats())


class Counting:
    """A store whose first transaction waits for everybody."""

    def __init__(self, all_there: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        self.batches: list[int] = []
        self.asked = asyncio.Event()
        self._all_there = all_there
        self._loop = loop

    def transact(self, act: object, frames: list[tuple[Session, Heartbeat]]) -> dict[str, int]:
        self.batches.append(len(frames))
        self._loop.call_soon_threadsafe(self.asked.set)
        asyncio.run_coroutine_threadsafe(self._all_there.wait(), self._loop).result(10)
        if any(frame.seq == 13 for _, frame in frames):
            raise Stale("somebody was faster")
        return {session.node_id: frame.revision for session, frame in frames if frame.revision}


def test_what_comes_meanwhile_is_written_together() -> None:
    asyncio.run(_meanwhile())


async def _meanwhile() -> None:
    all_there = asyncio.Event()
    store = Counting(all_there, asyncio.get_running_loop())
    pulse = Pulse(store)  # type: ignore[arg-type]

    def beats(number: int, seq: int = 1) -> asyncio.Task[int | None]:
        return asyncio.create_task(pulse.beat(Session(f"nd-{number}", 1, "jn"), Heartbeat(seq, 1, "st", number)))

    first = beats(7)
    await store.asked.wait()
    more = [beats(number) for number in range(50)]
    gone = beats(99)
    await asyncio.sleep(0)
    gone.cancel()  # its connection ended
    all_there.set()
    assert await first == 7
    assert await asyncio.gather(*more) == [None, *range(1, 50)]
    assert store.batches == [1, 51]
    with pytest.raises(Stale):
        await beats(1, seq=13)
    assert await beats(2) == 2
