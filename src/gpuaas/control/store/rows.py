"""Rows out of the database, as frozen dataclasses."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import msgspec
from psycopg.types.json import Jsonb
from sqlalchemy import Column, Connection, Select, Table
from sqlalchemy.exc import IntegrityError

from gpuaas.kit.errors import Taken

UNIQUE_VIOLATION = "23505"

R = TypeVar("R")


@contextmanager
def unique() -> Iterator[None]:
    """A unique constraint that says no becomes Taken; the transaction is over then."""
    try:
        yield
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) == UNIQUE_VIOLATION:
            raise Taken(str(error.orig)) from error
        raise


@cache
def columns(table: Table, kind: type[Any]) -> tuple[Column[Any], ...]:
    """The columns of `table` that the dataclass names, in its order."""
    return tuple(table.c[field.name] for field in dataclasses.fields(kind))


@cache
def _tuples(kind: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind) if str(f.type).startswith("tuple"))


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All of them, and those that are arrays in the database."""
    anything: Any = kind
    return tuple(field.name for field in dataclasses.fields(kind)), _tuples(anything)


def build(kind: type[R], row: Any) -> R:
    values = dict(row._mapping)
    anything: Any = kind
    for name in _tuples(anything):
        values[name] = tuple(values[name])
    return kind(**values)


def names(kind: type[Any], table: str = "") -> str:
    """The columns that the dataclass names, in its order, for a statement in SQL; of `table`, where there are more."""
    return ", ".join(f"{table}.{field.name}" if table else field.name for field in dataclasses.fields(kind))


def made(kind: type[R], row: tuple[Any, ...]) -> R:
    """From the columns of `names`. `kind(*row)` takes four times as long: what is frozen is set field by field."""
    anything: Any = kind
    fields, arrays = _fields(anything)
    item = object.__new__(kind)
    values = item.__dict__
    values.update(zip(fields, row, strict=True))
    for name in arrays:
        values[name] = tuple(values[name])
    return item


def jsonb(value: Any) -> Jsonb:
    return Jsonb(value, dumps=msgspec.json.encode)


def one(conn: Connection, statement: Select[Any], kind: type[R], **values: Any) -> R | None:
    row = conn.execute(statement, values).one_or_none()
    return None if row is None else build(kind, row)


def many(conn: Connection, statement: Select[Any], kind: type[R]) -> list[R]:
    return [build(kind, row) for row in conn.execute(statement)]
