"""A server that is late with its own work takes nobody's silence for theirs."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from control.cluster import Cluster
from gpuaas.control.store.transaction import Store
from gpuaas.control.store.wakes import Wakes
from gpuaas.control.sweeps import lost_nodes
from gpuaas.control.sweeps.loop import LATE_SECONDS, Sweep, begin, repeat

LOST_NODES = Sweep("lost_nodes", lost_nodes.sweep, 2.0, "nodes")
HOUR = timedelta(hours=1)


def test_a_server_that_is_behind_gives_up_no_node(cluster: Cluster) -> None:
    agent = cluster.agent()
    cluster.sql("UPDATE nodes SET last_seen_at = last_seen_at - interval '1 hour'")
    cluster.store.since -= HOUR
    begin(LOST_NODES, cluster.store, due=time.monotonic() - LATE_SECONDS - 1)
    assert cluster.node(agent).state == "ready"
    begin(LOST_NODES, cluster.store, due=time.monotonic())
    assert cluster.node(agent).state == "ready", "what it said meanwhile may still be read"
    cluster.store.since -= lost_nodes.SILENCE
    begin(LOST_NODES, cluster.store, due=time.monotonic())
    assert cluster.node(agent).state == "lost"


def test_one_that_waits_for_a_thread_is_late(cluster: Cluster, database_url: str) -> None:
    store = cluster.store
    store.since = before = store.clock.now() - HOUR

    async def wait_for_a_thread() -> None:
        loop, ran = asyncio.get_running_loop(), asyncio.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, time.sleep, LATE_SECONDS + 0.5)

        def run(store: Store) -> int:
            loop.call_soon_threadsafe(ran.set)
            return 0

        repeating = asyncio.create_task(repeat(Sweep("one", run, 2.0, "never"), store, Wakes(database_url)))
        await ran.wait()
        repeating.cancel()

    asyncio.run(wait_for_a_thread())
    assert store.since > before
