"""One server with 1,000 nodes linked to it and 2,000 machines on them: what it takes, and how long changes take then.

The nodes are the product's own links and runners over modelled hosts, a thousand of them in one other process. Besides:
how long after its commit an event is read by somebody who follows the project (promise: p99 100 ms).

    bench/fleet.py [NODES [MACHINES]]    with other numbers nothing is recorded
"""

import asyncio
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path

from floors.installation import Up, modelled
from floors.results import record

from gpuaas.wire.api import NewOffer

PORT = 7380
NODES, MACHINES = 1_000, 2_000
GPUS = 2  # of each node
IDLE_SECONDS = 20.0
CHANGES = 200
CLIENTS = 4
OFFER = NewOffer("bench", "Small", "L4", 1, 1, 64)


def main() -> None:
    nodes = int(sys.argv[1]) if sys.argv[1:] else NODES
    machines = int(sys.argv[2]) if sys.argv[2:] else 2 * nodes
    directory = Path(tempfile.mkdtemp(prefix="gpuaas-bench-", dir="/var/tmp"))
    directory.chmod(0o711)
    try:
        with modelled(directory, PORT, "1xH100") as running:
            lines = measured(running, nodes, machines)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = "\n".join(lines)
    print(text)
    if (nodes, machines) == (NODES, MACHINES):
        record("fleet", text)


def measured(running: Up, count: int, machines: int) -> list[str]:
    server = json.loads((running.state / "server.pid").read_text())["pid"]
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    with running.client() as client:
        client.offers.create(OFFER)
        tokens = [client.nodes.join_token(approve_slots=True).secret for _ in range(count)]
        fleet = spawn.Process(target=run_nodes, args=(running.url, tokens, stop))
        fleet.start()
        try:
            wait_until(lambda: ready(client) >= count, 600)
            rows = [f"| {count} nodes, no machine | {idle(server)} |"]
            print(rows[-1], file=sys.stderr, flush=True)
            launch(running, machines)
            wait_until(lambda: active(client) >= machines, 600)
            rows.append(f"| {count} nodes, {machines} machines | {idle(server)} |")
            print(rows[-1], file=sys.stderr, flush=True)
            released, launched, heard = changes(running)
        finally:
            stop.set()
            fleet.join(60)
            fleet.kill()

    def shown(times: list[float]) -> str:
        return " | ".join([str(len(times)), *(f"{1000 * quantile(times, part):.0f}" for part in (0.5, 0.99))])

    return [
        f"On {os.cpu_count()} cores, with the nodes' own work beside the server's; load average at the end: "
        f"{os.getloadavg()[0]:.0f}.",
        "",
        f"| | server, % of a core over {IDLE_SECONDS:.0f} s | server RSS MB |",
        "|---|---|---|",
        *rows,
        "",
        "| with all of them there | n | p50 ms | p99 ms |",
        "|---|---|---|---|",
        f"| release, by {CLIENTS} at a time: the answer | {shown(released)} |",
        f"| launch, by {CLIENTS} at a time: the answer, with a place | {shown(launched)} |",
        f"| an event: from its commit to who follows the project (promise p99: 100) | {shown(heard)} |",
    ]


def ready(client) -> int:  # type: ignore[no-untyped-def]
    return sum(1 for node in client.nodes.list() if node.state == "ready" and node.ready) - 1


def active(client) -> int:  # type: ignore[no-untyped-def]
    return sum(1 for each in client.allocations.list() if each.state == "active")


def launch(running: Up, count: int) -> None:
    with running.client() as client, ThreadPoolExecutor(CLIENTS) as pool:
        groups = [(f"fleet-{n}", min(50, count - 50 * n)) for n in range((count + 49) // 50)]
        act = lambda group: client.allocations.launch(group[0], offer=OFFER.slug, count=group[1], wait=True)  # noqa: E731
        list(pool.map(act, groups))


def changes(running: Up) -> tuple[list[float], list[float], list[float]]:
    """Releases from the full fleet, and as many launches once their places are free; and when their events are read."""
    heard: list[float] = []
    over = threading.Event()

    def follow() -> None:
        with running.client() as client:
            for event in client.events.follow():
                heard.append(max(0.0, time.time() - event.at.timestamp()))
                if over.is_set():
                    return

    listener = threading.Thread(target=follow, daemon=True)
    listener.start()
    time.sleep(1.0)
    with running.client() as client, ThreadPoolExecutor(CLIENTS) as pool:
        names = [each.name for each in client.allocations.list()]
        going = names[: CHANGES // 2]

        def timed(act) -> float:  # type: ignore[no-untyped-def]
            began = time.perf_counter()
            act()
            return time.perf_counter() - began

        def release(name: str) -> float:
            return timed(lambda: client.allocations.release(name, confirm=name))

        def launch_one(number: int) -> float:
            return timed(lambda: client.allocations.launch(f"again-{number}", offer=OFFER.slug))  # or is refused

        released = list(pool.map(release, going))
        wait_until(lambda: sum(1 for _ in client.allocations.list()) <= len(names) - len(going), 120)
        time.sleep(5.0)  # the last of their slots is clean
        launched = list(pool.map(launch_one, range(len(going) - 1)))
        time.sleep(2.0)
        over.set()
        client.allocations.launch("last", offer=OFFER.slug)
    listener.join(10)
    return released, launched, heard


def idle(server: int) -> str:
    time.sleep(3.0)
    before, began = cpu_seconds(server), time.monotonic()
    time.sleep(IDLE_SECONDS)
    used = (cpu_seconds(server) - before) / (time.monotonic() - began)
    resident = int(Path(f"/proc/{server}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return f"{used * 100:.0f} | {resident:.0f}"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(true, seconds: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("the fleet is not there in time")
        time.sleep(1.0)


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def run_nodes(url: str, tokens: list[str], stop: Event) -> None:
    asyncio.run(_run_nodes(url, tokens, stop))


async def _run_nodes(url: str, tokens: list[str], stop: Event) -> None:
    joining = asyncio.Semaphore(8)
    tasks = [asyncio.create_task(_node(url, token, f"bench-{n}", joining)) for n, token in enumerate(tokens)]
    await asyncio.to_thread(stop.wait)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _node(url: str, token: str, name: str, joining: asyncio.Semaphore) -> None:
    """An agent without threads: its link and its runner in turn, as frames and time ask for it."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    from gpuaas.kit.clock import SystemClock
    from gpuaas.kit.ids import Ids
    from gpuaas.node.backoff import Backoff
    from gpuaas.node.host.fake import FakeDisk, FakeHost
    from gpuaas.node.identity import identity
    from gpuaas.node.join import join
    from gpuaas.node.journal import Journal
    from gpuaas.node.link import Link
    from gpuaas.node.runner import Runner
    from gpuaas.node.servers import Servers, websocket_url
    from gpuaas.wire.node import LINK_PATH, encode, from_server

    disk, clock = FakeDisk(), SystemClock()
    me = identity(disk)
    journal = Journal(disk, Ids())
    async with joining:
        journal.joined(await join(Servers(url), token, name, me))
    runner = Runner(FakeHost(f"{GPUS}xL4", name, "192.0.2.1"), journal, clock)
    link = Link(runner, journal, me.sign_link, clock, "bench")
    backoff = Backoff()
    while True:
        try:
            async with joining:
                socket = await connect(websocket_url(url) + LINK_PATH, compression=None, open_timeout=60)
            link.connected()
            try:
                while not link.broken:
                    frames = link.poll()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(max(0.0, link.due() - clock.boottime())):
                            frames += link.receive(from_server(await socket.recv()))
                    for id in runner.wanted():
                        runner.converge(id)
                    for frame in (*frames, *link.poll()):
                        await socket.send(encode(frame).decode())
            finally:
                link.disconnected()
                await socket.close()
        except (OSError, WebSocketException):  # as an agent does: it comes again
            await asyncio.sleep(backoff.next())


if __name__ == "__main__":
    main()
