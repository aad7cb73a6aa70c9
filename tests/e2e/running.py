"""The product's agent in a thread of this process, and patience with what it does."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpuaas.node.config import AgentConfig
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.main import run

PATIENCE_SECONDS = 60.0


@contextmanager
def agent(config: AgentConfig, host: FakeHost) -> Iterator[None]:
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    working = run(config, host, FileDisk(config.state_dir), stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(working,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def eventually(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
