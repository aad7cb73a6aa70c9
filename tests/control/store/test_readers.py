"""Looks on an event loop: nobody keeps others waiting, and nobody gets another one's answer."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from gpuaas.control.store.readers import Readers
from gpuaas.control.store.transaction import Store, Tx, connect
from gpuaas.kit.errors import Problem

LOCK = 4711


@pytest.fixture
def blocker(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Holds a lock that looks can be made to wait for."""
    url = database_url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as made:
        made.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        yield made


def run(database_url: str, work: Callable[[Readers], Awaitable[None]], **pool: Any) -> None:
    store = Store(connect(database_url, pool_size=1))

    async def inside() -> None:
        readers = Readers(store, database_url, **pool)
        readers.open()
        try:
            await work(readers)
        finally:
            readers.close()

    try:
        asyncio.run(asyncio.wait_for(inside(), 30))
    finally:
        store.engine.dispose()


def number(n: int) -> Callable[[Tx], int]:
    return lambda tx: int(tx.run("SELECT %(n)s::int", {"n": n}).fetchall()[0][0])


def blocked(tx: Tx) -> str:
    tx.run("SELECT pg_advisory_lock_shared(%(lock)s)", {"lock": LOCK})
    tx.run("SELECT pg_advisory_unlock_shared(%(lock)s)", {"lock": LOCK})
    return "there"


async def waits(blocker: psycopg.Connection[Any]) -> None:
    """Until somebody waits for the lock."""
    asked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
    while not (blocker.execute(asked, [LOCK]).fetchone() or [0])[0]:  # noqa: ASYNC110 - it is the database that knows
        await asyncio.sleep(0.01)


def test_who_waits_for_the_database_keeps_nobody_waiting(database_url: str, blocker: psycopg.Connection[Any]) -> None:
    async def work(readers: Readers) -> None:
        slow = asyncio.create_task(readers.look(blocked))
        await waits(blocker)
        assert await asyncio.gather(*(readers.look(number(n)) for n in range(50))) == list(range(50))
        assert not slow.done()
        blocker.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        assert await slow == "there"

    run(database_url, work, pool_size=3)


def test_a_look_that_is_given_up_leaves_no_answer_behind(database_url: str, blocker: psycopg.Connection[Any]) -> None:
    async def work(readers: Readers) -> None:
        for _ in range(3):
            slow = asyncio.create_task(readers.look(blocked))
            await waits(blocker)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            assert await readers.look(number(7)) == 7

    run(database_url, work, pool_size=1)


def test_when_everybody_waits_the_next_one_is_told(database_url: str, blocker: psycopg.Connection[Any]) -> None:
    async def work(readers: Readers) -> None:
        slow = asyncio.create_task(readers.look(blocked))
        await waits(blocker)
        with pytest.raises(Problem) as refused:
            await readers.look(number(1))
        assert (refused.value.status, refused.value.code) == (503, "store_unavailable")
        blocker.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        assert await slow == "there"
        assert await readers.look(number(1)) == 1

    run(database_url, work, pool_size=1, pool_seconds=0.05)


def test_a_connection_that_is_lost_is_one_answer_and_the_next_is_new(database_url: str) -> None:
    async def work(readers: Readers) -> None:
        with pytest.raises(Problem) as lost:
            await readers.look(lambda tx: tx.run("SELECT pg_terminate_backend(pg_backend_pid())"))
        assert (lost.value.status, lost.value.code) == (503, "store_unavailable")
        assert await readers.look(number(3)) == 3

    run(database_url, work, pool_size=1)


def test_a_connection_that_ends_while_nobody_waits_is_one_answer_too(database_url: str) -> None:
    async def work(readers: Readers) -> None:
        backend = await readers.look(lambda tx: tx.run("SELECT pg_backend_pid()").rows[0][0])
        with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])
        await asyncio.sleep(0)  # the event loop is told, and nobody is there to hear it
        with pytest.raises(Problem) as lost:
            await readers.look(number(3))
        assert (lost.value.status, lost.value.code) == (503, "store_unavailable")
        assert await readers.look(number(3)) == 3

    run(database_url, work, pool_size=1)


def test_no_descriptor_outlives_its_connection(database_url: str, blocker: psycopg.Connection[Any]) -> None:
    async def work(readers: Readers) -> None:
        async def given_up() -> None:
            slow = asyncio.create_task(readers.look(blocked))
            await waits(blocker)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow

        async def lost() -> None:
            with pytest.raises(Problem):
                await readers.look(lambda tx: tx.run("SELECT pg_terminate_backend(pg_backend_pid())"))

        await readers.look(number(1))
        open_ = len(os.listdir("/proc/self/fd"))
        for ends in (given_up, lost) * 3:
            await ends()
            assert await readers.look(number(1)) == 1
        assert len(os.listdir("/proc/self/fd")) == open_

    run(database_url, work, pool_size=1)


def test_an_answer_in_many_pieces_is_whole(database_url: str) -> None:
    async def work(readers: Readers) -> None:
        asked = "SELECT repeat(%(letter)s, 1000000)"
        looks = [readers.look(lambda tx, x=x: tx.run(asked, {"letter": x}).rows[0][0]) for x in "abcd" * 3]  # type: ignore[misc]
        assert await asyncio.gather(*looks) == [x * 1_000_000 for x in "abcd" * 3]

    run(database_url, work, pool_size=3)


def test_errors_of_the_work_are_its_own(database_url: str) -> None:
    def wrong(tx: Tx) -> None:
        raise Problem("nothing_here", 404, "There is nothing.")

    async def work(readers: Readers) -> None:
        for _ in range(2):
            with pytest.raises(Problem, match="There is nothing"):
                await readers.look(wrong)
            assert await readers.look(number(1)) == 1

    run(database_url, work, pool_size=1)


def test_what_is_bound_outside_is_known_inside_and_sqlalchemy_works_too(database_url: str) -> None:
    said: ContextVar[str] = ContextVar("said", default="nothing")

    def look(tx: Tx) -> tuple[str, int]:
        return said.get(), tx.conn.execute(text("SELECT 5")).scalar_one()

    async def work(readers: Readers) -> None:
        async def saying(word: str) -> tuple[str, int]:
            said.set(word)
            return await readers.look(look)

        assert await asyncio.gather(saying("one"), saying("two")) == [("one", 5), ("two", 5)]
        assert await readers.look(look) == ("nothing", 5)

    run(database_url, work)
