"""Statements that are put off, and those that travel together."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from gpuaas.control.store.exchange import Answer
from gpuaas.control.store.noted import noted, noting
from gpuaas.control.store.transaction import ATTEMPTS, Carefully, Store, Tx, connect
from gpuaas.kit.errors import Problem, Stale

ADD = "INSERT INTO numbers VALUES (%(n)s)"
LOOK: tuple[str, dict[str, str]] = (f"SELECT {noted('number')}", {})


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    made = Store(connect(database_url, pool_size=2))
    made.transact(lambda tx: tx.later("CREATE TABLE numbers (n int PRIMARY KEY DEFERRABLE INITIALLY IMMEDIATE)"))
    yield made
    made.transact(lambda tx: tx.later("DROP TABLE numbers"))
    made.engine.dispose()


def numbers(tx: Tx) -> list[int]:
    return [row[0] for row in tx.run("SELECT n FROM numbers ORDER BY n")]


def later(tx: Tx, *values: int) -> None:
    for value in values:
        tx.later(ADD, {"n": value})


def test_what_is_put_off_is_there_when_somebody_looks(store: Store) -> None:
    def work(tx: Tx) -> None:
        later(tx, 1, 2)
        assert numbers(tx) == [1, 2]
        later(tx, 3)
        assert tx.conn.execute(text("SELECT count(*) FROM numbers")).scalar_one() == 3
        later(tx, 4)
        assert tx.together((ADD + " RETURNING n", {"n": 5}), ("SELECT sum(n) FROM numbers", {})) == [[(5,)], [(15,)]]
        later(tx, 6)

    store.transact(work)
    assert store.transact(numbers) == [1, 2, 3, 4, 5, 6]


def test_an_error_takes_everything_back_and_is_the_first_one(store: Store) -> None:
    def work(tx: Tx) -> None:
        later(tx, 1, 1, 2)  # sent with the commit

    with pytest.raises(IntegrityError, match="numbers_pkey"):
        store.transact(work)
    assert store.transact(numbers) == []


def test_a_constraint_says_what_it_was_said_to_mean_whenever_its_statement_is_sent(store: Store) -> None:
    def work(tx: Tx, look: bool) -> None:
        tx.means("numbers_pkey", Stale("one is there"))
        tx.means("numbers_pkey", Stale("said later"))
        tx.means("another", Stale("of something else"))
        later(tx, 1, 1)
        if look:
            numbers(tx)

    for look in (True, False):
        with pytest.raises(Stale, match="one is there"):
            store.transact(work, look)
        assert store.transact(numbers) == []


def test_what_a_transaction_notes_is_forgotten_with_it(store: Store) -> None:
    def work(tx: Tx) -> list[list[tuple[str]]]:
        return tx.together((f"SELECT {noting('number', 'n::text')} FROM (VALUES (7)) AS v (n)", {}), LOOK)

    assert store.transact(work)[1] == [("7",)]
    for _ in range(2):  # on whichever connection
        assert not store.transact(lambda tx: tx.together(LOOK))[0][0][0]


def test_an_answer_that_is_not_as_it_must_be_is_not_committed(store: Store) -> None:
    def check(answer: Answer) -> None:
        if answer.rowcount != 1:
            raise Stale("somebody else has it")

    def work(tx: Tx) -> None:
        tx.later(ADD, {"n": 1}, check)
        tx.later("DELETE FROM numbers WHERE n = 7", None, check)

    with pytest.raises(Stale):
        store.transact(work)
    assert store.transact(numbers) == []


def test_an_attempt_is_taken_back_alone(store: Store) -> None:
    def work(tx: Tx) -> None:
        later(tx, 1)
        take_back = tx.attempt()
        later(tx, 2)
        take_back()
        again = tx.attempt()
        later(tx, 3)
        assert numbers(tx) == [1, 3]
        again()
        tx.attempt()
        later(tx, 4)

    store.transact(work)
    assert store.transact(numbers) == [1, 4]


def test_a_connection_that_is_lost_while_statements_travel_is_not_used_again(store: Store) -> None:
    def work(tx: Tx) -> None:
        later(tx, 1)
        tx.later("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(Problem, match="did not answer"):
        store.transact(work)
    assert store.transact(numbers) == []


def test_a_deadlock_runs_again(store: Store) -> None:
    runs = []

    def work(tx: Tx) -> None:
        runs.append(1)
        later(tx, 1)
        if len(runs) == 1:
            tx.later("DO $$ BEGIN RAISE EXCEPTION 'circle' USING ERRCODE = '40P01'; END $$")

    store.transact(work)
    assert len(runs) == 2
    assert store.transact(numbers) == [1]


def test_what_never_comes_to_an_end_is_said_to_be_busy(store: Store) -> None:
    """Be it a circle each time, or one until the last time, which then wants to be run with attempts."""
    runs: list[bool] = []

    def work(tx: Tx, last: bool) -> None:
        runs.append(tx.careful)
        later(tx, 1)
        if last and len(runs) == ATTEMPTS:
            raise Carefully
        tx.later("DO $$ BEGIN RAISE EXCEPTION 'circle' USING ERRCODE = '40P01'; END $$")

    for last in (False, True):
        runs.clear()
        with pytest.raises(Problem) as found:
            store.transact(work, last)
        assert (found.value.code, found.value.status, found.value.extra) == ("busy", 503, {"retry_after": 1})
        assert runs == [False] * ATTEMPTS
    assert store.transact(numbers) == []
