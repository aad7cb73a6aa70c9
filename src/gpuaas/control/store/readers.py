"""Reads on the event loop: the same synchronous code as everywhere, in a greenlet that gives way while it waits.

For what is asked often and answered with a page at most. A thread for each of them costs more than the read itself;
what computes for long belongs into one all the same, since nobody else is served meanwhile.
"""

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import psycopg
from greenlet import GreenletExit, getcurrent, greenlet
from sqlalchemy import Connection, event

from gpuaas.control.store.transaction import Store, Tx, connect, counted_in, unavailable

T = TypeVar("T")

CONNECTIONS = 4
_READABLE, _WRITABLE = 1, 2  # as the driver calls them: what it waits for, and what came


class Readers:
    def __init__(self, store: Store, url: str, *, pool_size: int = CONNECTIONS, pool_seconds: float = 10.0) -> None:
        self._store = store
        self._seconds = pool_seconds
        self._room = asyncio.Semaphore(pool_size)  # so that nobody ever waits for the pool, with everybody else
        self.engine = connect(url, pool_size=pool_size, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
        event.listen(
            self.engine, "do_connect", lambda dialect, record, args, named: _Connection.connect(*args, **named)
        )
        self._free: list[Connection] = []  # to take one out of SQLAlchemy's pool costs half as much as a look
        self._idle: list[_Alongside] = []
        store.counted_besides.append(self._count)

    def open(self) -> None:
        """Before anybody looks: SQLAlchemy's first connection is made under a lock, which would stop the event loop."""
        self.engine.connect().close()

    async def look(self, work: Callable[[Tx], T], *, correlation_id: str | None = None) -> T:
        """As `Store.look`."""
        await self._enter()
        try:
            look = partial(self._store.look, work, correlation_id=correlation_id, over=self._lent)
            return await _alongside(look, self._idle)
        finally:
            self._room.release()

    def close(self) -> None:
        while self._free:
            self._free.pop().close()
        self.engine.dispose()

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        """Whatever goes wrong, it goes back to the pool, which knows what to do with it."""
        lent = self._free.pop() if self._free else self.engine.connect()
        driver: Any = lent.connection.driver_connection
        try:
            yield lent
        except BaseException:
            if driver.closed:
                lent.invalidate()
            lent.close()
            raise
        self._free.append(lent)

    def _count(self) -> dict[str, int]:
        free = len(self._free)
        found = counted_in(self.engine)
        return {**found, "in_use": found["in_use"] - free, "idle": found["idle"] + free}

    async def _enter(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._room.acquire()
        except TimeoutError as error:
            self._store.meters.add("store_unavailable_total", why="pool")
            raise unavailable(error) from error


@dataclass(frozen=True)
class _Done:
    found: Any = None
    failed: BaseException | None = None


class _Alongside(greenlet):  # type: ignore[misc]
    """Does one work after the other: a new one for each would get its stack from the system, and give it back."""

    work: Callable[[], Any] | None = None

    def run(self) -> None:
        while self.work:
            assert self.parent is not None
            self.parent.switch(_done(self.work))

    def until(self, what: Awaitable[Any]) -> Any:
        """Called inside: others go on until it is there."""
        assert self.parent is not None
        return self.parent.switch(what)


def _done(work: Callable[[], Any]) -> _Done:
    try:
        return _Done(work())
    except GreenletExit:  # nobody needs it any more
        raise
    except BaseException as error:
        return _Done(failed=error)


async def _alongside(work: Callable[[], T], idle: list[_Alongside]) -> T:
    inside = idle.pop() if idle else _Alongside()
    inside.work, inside.gr_context = work, contextvars.copy_context()
    got: Any = inside.switch()
    while not isinstance(got, _Done):
        try:
            came = await got
        except BaseException as error:
            got = inside.throw(error)
        else:
            got = inside.switch(came)
    inside.work = inside.gr_context = None
    idle.append(inside)
    try:
        if got.failed is not None:
            raise got.failed
        found: T = got.found
        return found
    finally:
        del got  # or it would hold on to itself, by its error's traceback


class _Connection(psycopg.Connection[Any]):
    """Waits for the database without keeping others from the event loop.

    The loop watches for answers as long as the connection is open: to begin and to end that takes ten system calls,
    which for every answer is more than asking. It watches a descriptor of its own, since libpq closes its one whenever
    it likes, and the next connection of the process may get the same number.
    """

    _watched: tuple[asyncio.AbstractEventLoop, int] | None = None  # by whom, under which number
    _came: "asyncio.Future[int] | None" = None  # told when there is something to read

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Any:
        inside = getcurrent()
        if isinstance(inside, _Alongside):  # looking up a name and shaking hands may take long
            return inside.until(asyncio.to_thread(super().connect, *args, **kwargs))
        return super().connect(*args, **kwargs)

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        inside = getcurrent()
        if not isinstance(inside, _Alongside):
            return super().wait(gen, interval, timeout)
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(self._until_ready(inside, wanted))
        except StopIteration as stop:
            return stop.value
        except BaseException:
            self._unwatch()
            raise

    def close(self) -> None:
        self._unwatch()
        super().close()

    def _until_ready(self, inside: _Alongside, wanted: int) -> int:
        loop = asyncio.get_running_loop()
        came: asyncio.Future[int] = loop.create_future()
        self._came, descriptor = came, self._watch(loop)
        if wanted & _WRITABLE:
            loop.add_writer(descriptor, _tell, came, _WRITABLE)
        given_up = True
        try:
            found: int = inside.until(came)
            given_up = False
        finally:
            self._came = None
            if wanted & _WRITABLE:
                loop.remove_writer(descriptor)
            if given_up:  # the answer must not meet the next question
                self.pgconn.finish()
        return found

    def _watch(self, loop: asyncio.AbstractEventLoop) -> int:
        if self._watched and self._watched[0] is loop:
            return self._watched[1]
        self._unwatch()
        descriptor = os.dup(self.pgconn.socket)
        self._watched = loop, descriptor
        loop.add_reader(descriptor, self._readable)
        return descriptor

    def _readable(self) -> None:
        """What nobody waits for is a last word: to be read by whoever asks next, and not to be told again and again."""
        if self._came:
            _tell(self._came, _READABLE)
        else:
            self._unwatch()

    def _unwatch(self) -> None:
        if self._watched:
            (loop, descriptor), self._watched = self._watched, None
            if not loop.is_closed():
                loop.remove_reader(descriptor)
            os.close(descriptor)


def _tell(came: "asyncio.Future[int]", what: int) -> None:
    if not came.done():
        came.set_result(what)
