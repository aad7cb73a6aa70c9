"""Price books. Written once; a trigger refuses to change one."""

from datetime import datetime

import msgspec
from sqlalchemy import func, insert, select

from gpuaas.control.store import tables as t
from gpuaas.control.store.rows import columns, unique
from gpuaas.control.store.transaction import Tx
from gpuaas.model.price import PriceBook, Prices


def books(tx: Tx) -> list[PriceBook]:
    rows = tx.conn.execute(select(*columns(t.price_books, PriceBook)).order_by(t.price_books.c.version))
    return [PriceBook(**{**row._mapping, "prices": msgspec.convert(row.prices, Prices)}) for row in rows]


def insert_book(tx: Tx, valid_from: datetime, prices: Prices, note: str) -> PriceBook:
    """Taken when somebody else publishes at the same time."""
    newest = tx.conn.execute(select(func.coalesce(func.max(t.price_books.c.version), 0))).scalar_one()
    book = PriceBook(newest + 1, valid_from, prices, note, tx.actor, tx.now)
    with unique():
        tx.conn.execute(insert(t.price_books).values({**book.__dict__, "prices": msgspec.to_builtins(prices)}))
    return book
