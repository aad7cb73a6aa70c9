"""Listening for wake-ups: one connection per replica, fanned out to whoever waits for a topic. Hints only."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy import make_url

from gpuaas.control.store.transaction import CHANNEL

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5


class Wakes:
    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def on(self, *topics: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of the topics is woken. Subscribe, look, then wait: nothing is missed."""
        event = asyncio.Event()
        for topic in topics:
            self._waiting[topic].add(event)
        try:
            yield event
        finally:
            for topic in topics:
                self._waiting[topic].discard(event)
                if not self._waiting[topic]:
                    del self._waiting[topic]

    async def listen(self) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self._wake_all()  # whatever was said while nobody listened
                    async for notice in connection.notifies():
                        for event in self._waiting.get(notice.payload, ()):
                            event.set()
            except psycopg.Error as error:
                log.warning("listening again after: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """True when woken, False when the time is over."""
    try:
        async with asyncio.timeout(seconds):  # wait_for can swallow a cancellation that comes in the same moment
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
