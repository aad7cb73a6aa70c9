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
MOST_UNREAD = 256  # of one reader; what comes on top is lost, as all mail can be


class Wakes:
    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._readers: dict[str, set[asyncio.Queue[str]]] = defaultdict(set)

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

    @contextmanager
    def mail(self, topic: str) -> Iterator[asyncio.Queue[str]]:
        """What any replica posts to the topic from now on."""
        unread: asyncio.Queue[str] = asyncio.Queue(MOST_UNREAD)
        self._readers[topic].add(unread)
        try:
            yield unread
        finally:
            self._readers[topic].discard(unread)
            if not self._readers[topic]:
                del self._readers[topic]

    async def listen(self) -> None:
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self._wake_all()  # whatever was said while nobody listened
                    async for notice in connection.notifies():
                        self._heard(*notice.payload.partition(" ")[::2])
            except psycopg.Error as error:
                log.warning("listening again after: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    def _heard(self, topic: str, message: str) -> None:
        anything = topic.partition(":")[0] + ":*"  # for who wants to know of every object of a kind
        for event in (*self._waiting.get(topic, ()), *self._waiting.get(anything, ())):
            event.set()
        for unread in self._readers.get(topic, ()):
            if unread.full():
                log.warning("mail for %s is lost: nobody reads it", topic)
            else:
                unread.put_nowait(message)

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
