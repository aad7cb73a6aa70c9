"""The agent's own link, over the real host and on the real clock, to a server that acknowledges everything."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuaas.kit.clock import SystemClock
from gpuaas.kit.ids import Ids
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.interface import Host
from gpuaas.node.journal import Journal
from gpuaas.node.link import Link
from gpuaas.node.runner import Runner
from gpuaas.wire.node import Ack, Challenge, FromAgent, Heartbeat, Hello, Welcome
from node.samples import NODE, STORE

_LOOK_SECONDS = 0.02


@contextmanager
def beating(host: Host, directory: Path) -> Iterator[list[float]]:
    """When each heartbeat went out, the end of the block included."""
    journal = Journal(FileDisk(directory / "journal"), Ids(random.Random()))
    journal.joined(NODE)
    journal.synced(STORE)
    clock = SystemClock()
    link = Link(Runner(host, journal, clock), journal, lambda nonce: nonce, clock, "test")
    link.connected()
    link.receive(Challenge("nonce"))
    beats: list[float] = []
    ended = threading.Event()

    def acknowledge(frames: list[FromAgent]) -> None:
        for frame in frames:
            if isinstance(frame, Heartbeat):
                beats.append(time.monotonic())
            if not isinstance(frame, Hello):
                acknowledge(link.receive(Ack(frame.seq, 10)))

    def talk() -> None:
        acknowledge(link.receive(Welcome(STORE, 1, True, 10)))
        while not ended.wait(_LOOK_SECONDS):
            acknowledge(link.poll())

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield beats
    finally:
        ended.set()
        thread.join()
        beats.append(time.monotonic())
