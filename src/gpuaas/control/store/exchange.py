"""Statements to PostgreSQL and their answers in one round trip: written at once, read at once.

The driver's own pipeline hands every statement to the network by itself, so that the database wakes up for each, and
makes a cursor for each; a launch sends twenty. Connecting, waiting and converting values is left to the driver.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import psycopg
from psycopg import pq
from psycopg.abc import PQGen as Waits
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

log = logging.getLogger(__name__)

Asked = tuple[str, Mapping[str, Any] | None]
Key = tuple[bytes, tuple[int, ...]]  # a statement and the types of its values

KEPT = 400  # prepared statements of one connection: more than there are, as their texts are fixed
_FINE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_BEGIN: Asked = ("BEGIN", None)
_PLACE = re.compile(r"%(?:\((\w+)\)s|%)")


@dataclass(frozen=True)
class Answer:
    rows: list[tuple[Any, ...]]
    rowcount: int

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)


@dataclass(frozen=True)
class _Ready:
    """A statement as it is sent."""

    key: Key
    values: Sequence[Any] | None
    formats: Sequence[int] | None


class Exchange:
    """Of one connection, for as long as it is open. Begins a transaction where the driver would."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self._driver = driver
        self._convert = Transformer(driver)
        self._names: dict[Key, bytes] = {}  # empty for what was sent once: the second time, it is prepared
        self._numbers = count(1)

    @property
    def closed(self) -> bool:
        return self._driver.closed

    def __call__(self, *asked: Asked, hint: Asked | None = None) -> list[Answer]:
        """In this order. The first that fails is raised, and none after it has run. A hint may fail."""
        pgconn = self._driver.pgconn
        begins = not self._driver.autocommit and pgconn.transaction_status == pq.TransactionStatus.IDLE
        every = [*([_BEGIN] if begins else []), *asked, *([hint] if hint else [])]
        ready = [self._ready(*each) for each in every]
        try:
            prepared, results = self._driver.wait(self._spoken(pgconn, ready))
        except BaseException:
            pgconn.finish()  # what it says from now on would be an answer to somebody else
            raise
        for at, key in prepared.items():
            if results[at].status != pq.ExecStatus.COMMAND_OK:
                self._names.pop(key, None)
        said = [result for at, result in enumerate(results) if at not in prepared]
        answers = [self._answer(result) for result in said[: len(said) - bool(hint)]]
        self._convert.set_pgresult(None)
        if hint and said[-1].status not in _FINE:
            log.warning("a wake-up was lost: %s", said[-1].get_error_message())
        return answers[begins:]

    def _spoken(self, pgconn: PGconn, ready: Sequence[_Ready]) -> Waits[tuple[dict[int, Key], list[PGresult]]]:
        """Which answers are about a preparation, and all answers. Runs in the driver's `wait`, and starts there."""
        pgconn.enter_pipeline_mode()
        prepared = {at: key for at, key in enumerate(self._put(pgconn, ready)) if key}
        pgconn.pipeline_sync()
        results = yield from _results(pgconn)
        pgconn.exit_pipeline_mode()
        return prepared, results

    def _ready(self, statement: str, values: Mapping[str, Any] | None) -> _Ready:
        if values is None:
            return _Ready((statement.encode(), ()), None, None)
        text, names, formats = _numbered(statement)
        converted = self._convert.dump_sequence([values[name] for name in names], formats)
        return _Ready((text, self._convert.types or ()), converted, self._convert.formats)

    def _put(self, pgconn: PGconn, ready: Sequence[_Ready]) -> Iterator[Key | None]:
        """Into the buffer of the connection. For each answer that will come: what it prepares, if anything."""
        for each in ready:
            text, types = each.key
            name = self._names.get(each.key)
            if name is None and len(self._names) < KEPT:
                self._names[each.key] = b""
            if name == b"":
                name = self._names[each.key] = b"gpuaas_%d" % next(self._numbers)
                pgconn.send_prepare(name, text, types)
                yield each.key
            if name:
                pgconn.send_query_prepared(name, each.values, each.formats)
            else:
                pgconn.send_query_params(text, each.values, types, each.formats)
            yield None

    def _answer(self, result: PGresult) -> Answer:
        if result.status == pq.ExecStatus.TUPLES_OK:
            self._convert.set_pgresult(result)
            rows = self._convert.load_rows(0, result.ntuples, tuple)
            return Answer(rows, len(rows))
        if result.status == pq.ExecStatus.COMMAND_OK:
            return Answer([], result.command_tuples or 0)
        raise psycopg.errors.error_from_result(result)


@cache
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...], list[PyFormat]]:
    """With $1 instead of %(name)s, and the names in that order."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%"

    text = _PLACE.sub(place, statement).encode()
    return text, tuple(names), [PyFormat.AUTO] * len(names)


def _results(pgconn: PGconn) -> Waits[list[PGresult]]:
    """Sends what is in the buffer and reads until everything is answered."""
    found: list[PGresult | None] = []  # after each answer there is nothing, once
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    while True:
        while pgconn.is_busy():
            yield Wait.R
            try:
                pgconn.consume_input()
            except psycopg.OperationalError as error:
                raise _closed(found) from error
        result = pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.PIPELINE_SYNC:
            return [each for each in found if each]
        if result is None and found[-1:] == [None]:
            raise _closed(found)
        found.append(result)


def _closed(found: Sequence[PGresult | None]) -> psycopg.Error:
    """Why, as the server has said it, if it has."""
    for each in found:
        if each and each.status == pq.ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(each)
    return psycopg.OperationalError("the connection was closed before everything was answered")
