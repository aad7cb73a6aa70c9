"""One round trip with PostgreSQL: all of it or the first error, never another one's answer."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import pq

from gpuaas.control.store.exchange import KEPT, Exchange


@pytest.fixture
def driver(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    made = psycopg.connect(database_url.replace("+psycopg", ""), prepare_threshold=None)
    yield made
    made.close()


def prepared(driver: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in driver.execute("SELECT statement FROM pg_prepared_statements ORDER BY prepare_time")]


def test_every_statement_has_its_answer(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    one, made, added, none = exchange(
        ("SELECT %(a)s::int + %(b)s::int, %(a)s::text, '%%'", {"a": 1, "b": 2}),
        ("CREATE TEMP TABLE numbers (n int)", None),
        ("INSERT INTO numbers SELECT unnest(%(many)s::int[])", {"many": [1, 2, 3]}),
        ("SELECT n FROM numbers WHERE n = %(n)s", {"n": 7}),
    )
    assert one.fetchall() == [(3, "1", "%")]
    assert (made.fetchall(), added.rowcount, none.fetchone()) == ([], 3, None)
    assert list(exchange(("SELECT '100 %' AS said", None))[0]) == [("100 %",)]


def test_a_transaction_is_begun_where_the_driver_would(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    exchange(("SELECT 1", None))
    assert driver.pgconn.transaction_status == pq.TransactionStatus.INTRANS
    exchange(("SELECT 2", None), ("COMMIT", None))
    assert driver.pgconn.transaction_status == pq.TransactionStatus.IDLE
    driver.autocommit = True
    exchange(("SELECT 3", None))
    assert driver.pgconn.transaction_status == pq.TransactionStatus.IDLE


def test_the_first_error_is_raised_and_nothing_after_it_has_run(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    with pytest.raises(psycopg.errors.DivisionByZero):
        exchange(("SELECT 1", None), ("SELECT 1 / %(n)s::int", {"n": 0}), ("SELECT nothing", None))
    driver.rollback()
    assert exchange(("SELECT %(n)s::int", {"n": 4}))[0].fetchone() == (4,)


def test_what_is_asked_again_is_prepared_once_for_each_kind_of_values(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    for n in (1, 2, 3, 2**40, 2**41):
        assert exchange(("SELECT %(n)s AS n", {"n": n}))[0].fetchone() == (n,)
    assert len(prepared(driver)) == 2
    exchange(*[("SELECT 'in one go', %(n)s", {"n": n}) for n in range(4)])
    assert len(prepared(driver)) == 3


def test_what_could_not_be_prepared_is_tried_again(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    driver.execute("CREATE TEMP TABLE gone (n int)")
    driver.commit()
    count = ("SELECT count(*) FROM gone WHERE n > %(n)s", {"n": 1})
    exchange(count)
    with pytest.raises(psycopg.errors.DivisionByZero):
        exchange(("SELECT 1 / 0", None), count)  # it would have been prepared here
    driver.rollback()
    assert exchange(count)[0].fetchone() == exchange(count)[0].fetchone() == (0,)


def test_statements_without_number_do_not_fill_the_database(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    for _ in range(2):
        for n in range(KEPT + 10):
            exchange((f"SELECT {n}", None))
    assert len(prepared(driver)) <= KEPT


def test_a_hint_may_fail_and_what_was_committed_stays(driver: psycopg.Connection[Any], caplog: Any) -> None:
    exchange = Exchange(driver)
    exchange(("CREATE TEMP TABLE kept (n int)", None), ("COMMIT", None), hint=("SELECT 1 / 0", None))
    assert "division by zero" in caplog.text
    assert exchange(("SELECT count(*) FROM kept", None))[0].fetchone() == (0,)


def test_more_than_any_buffer_holds_in_both_directions(driver: psycopg.Connection[Any]) -> None:
    said = "x" * 20_000
    answers = Exchange(driver)(*[("SELECT %(said)s || %(n)s::text", {"said": said, "n": n}) for n in range(500)])
    assert [row[0] for (row,) in answers] == [f"{said}{n}" for n in range(500)]


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_connection_that_ends_says_so_and_is_closed(
    driver: psycopg.Connection[Any], database_url: str, when: str
) -> None:
    exchange = Exchange(driver)
    ((pid,),) = exchange(("SELECT pg_backend_pid()", None))[0]
    driver.rollback()

    def end() -> None:
        with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as other:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
            while when == "while" and not (other.execute(waiting, [pid]).fetchone() or [0])[0]:
                pass
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])

    ending = threading.Thread(target=end)
    ending.start()
    if when == "before":
        ending.join()
    with pytest.raises(psycopg.OperationalError):
        exchange(("SELECT pg_sleep(20)", None), ("SELECT 1", None))
    ending.join()
    assert driver.closed
    with pytest.raises(psycopg.OperationalError):
        exchange(("SELECT 1", None))


def test_a_value_that_no_column_can_hold_is_refused_before_anything_is_sent(driver: psycopg.Connection[Any]) -> None:
    exchange = Exchange(driver)
    with pytest.raises(psycopg.ProgrammingError):
        exchange(("SELECT 1", None), ("SELECT %(thing)s", {"thing": object()}))
    assert exchange(("SELECT 2", None))[0].fetchone() == (2,)
