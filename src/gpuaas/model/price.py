"""What an hour costs: versioned price books. A version never changes; the newest one whose time has come counts.

Prices are integers: millionths of the operator's currency for one hour.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Shape:
    """What is priced: the outcome as it was sold when the interval began."""

    offer: str
    gpu_model: str
    gpu_count: int
    cpus: int
    memory_mib: int
    list_price_micros_per_hour: int  # the offer's own price, which counts where no book names anything of it


@dataclass(frozen=True)
class Prices:
    """By offer, or else put together from parts: per GPU of a model, per CPU, per GiB of memory."""

    offers: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)
    cpu: int = 0
    memory_gib: int = 0


@dataclass(frozen=True)
class PriceBook:
    version: int
    valid_from: datetime
    prices: Prices
    note: str
    created_by: str
    created_at: datetime


def price_of(shape: Shape, book: PriceBook | None) -> tuple[int, int | None]:
    """(micros per hour, the version that says so); None: the offer's own price."""
    if book is not None:
        prices = book.prices
        if shape.offer in prices.offers:
            return prices.offers[shape.offer], book.version
        if shape.gpu_model in prices.gpus if shape.gpu_count else prices.cpu or prices.memory_gib:
            memory = _nearest(prices.memory_gib * shape.memory_mib, MIB_PER_GIB)
            gpus = prices.gpus.get(shape.gpu_model, 0) * shape.gpu_count
            return gpus + prices.cpu * shape.cpus + memory, book.version
    return shape.list_price_micros_per_hour, None


def pieces(
    begin: datetime, end: datetime, books: Sequence[PriceBook]
) -> list[tuple[datetime, datetime, PriceBook | None]]:
    """The time from `begin` to `end`, cut where another book becomes valid. The interval itself stays whole."""
    cuts = sorted({book.valid_from for book in books if begin < book.valid_from < end})
    edges = [begin, *cuts, end]
    return [(start, stop, valid_at(start, books)) for start, stop in pairwise(edges)]


def valid_at(moment: datetime, books: Sequence[PriceBook]) -> PriceBook | None:
    return max((book for book in books if book.valid_from <= moment), key=lambda book: book.version, default=None)


def amount(micros_per_hour: int, microseconds: int) -> int:
    """Rounded to the nearest millionth, halves up: once for each line, so that lines add up to their total."""
    return _nearest(micros_per_hour * microseconds, 3600 * 1_000_000)


def _nearest(dividend: int, divisor: int) -> int:
    return (2 * dividend + divisor) // (2 * divisor)
