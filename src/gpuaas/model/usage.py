"""The ledger and what follows from it: lines, each one interval (or its correction) at one price. Pure and exact.

The same ledger, corrections and books give the same lines at any later time, because none of the three is ever edited
and a book cannot become valid in the past.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuaas.model.price import PriceBook, Shape, amount, pieces, price_of

MICROSECOND = timedelta(microseconds=1)
MACHINE_TIME = "allocation"  # the component of a machine


@dataclass(frozen=True)
class Interval:
    """Time in which something costs; open while `ended_at` is None."""

    id: str
    org_id: str
    project_id: str
    resource_id: str
    user_id: str | None
    component: str
    shape: Shape
    gpus: tuple[str, ...]
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Correction:
    """A part of an interval that is not charged after all. Counted when it was recorded, at the prices of its time."""

    id: str
    usage_id: str
    project_id: str
    started_at: datetime
    ended_at: datetime
    reason: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True)
class Line:
    usage_id: str
    correction_id: str | None
    project_id: str
    resource_id: str
    user_id: str | None
    component: str
    offer: str
    gpu_model: str
    gpu_count: int
    started_at: datetime
    ended_at: datetime
    microseconds: int  # negative in a correction, like the amount
    micros_per_hour: int
    price_book: int | None
    amount_micros: int
    reason: str = ""
    gpus_held: int = 0  # the price is of what was sold (`gpu_count`), GPU time of what nobody else could have

    @property
    def gpu_microseconds(self) -> int:
        return self.microseconds * self.gpus_held


@dataclass(frozen=True)
class Total:
    key: str
    microseconds: int = 0
    gpu_microseconds: int = 0
    amount_micros: int = 0


def lines(
    intervals: Sequence[Interval],
    corrections: Sequence[tuple[Correction, Interval]],
    books: Sequence[PriceBook],
    begin: datetime,
    end: datetime,
    now: datetime,
) -> list[Line]:
    """Of a period: what lies in it, and the corrections that were recorded in it. What is open costs until now."""
    found = []
    for interval in intervals:
        start = max(begin, interval.started_at)
        stop = min(end, interval.ended_at or now)
        found += _priced(interval, start, stop, books, None)
    for correction, interval in corrections:
        if begin <= correction.created_at < end:
            found += _priced(interval, correction.started_at, correction.ended_at, books, correction)
    return sorted(found, key=lambda line: (line.started_at, line.usage_id, line.correction_id or ""))


def _priced(
    interval: Interval, start: datetime, stop: datetime, books: Sequence[PriceBook], correction: Correction | None
) -> list[Line]:
    if start >= stop:
        return []
    made = []
    sign = -1 if correction else 1
    for first, last, price, version in _at_one_price(interval.shape, start, stop, books):
        microseconds = (last - first) // MICROSECOND
        made.append(
            Line(
                interval.id,
                correction.id if correction else None,
                interval.project_id,
                interval.resource_id,
                interval.user_id,
                interval.component,
                interval.shape.offer,
                interval.shape.gpu_model,
                interval.shape.gpu_count,
                first,
                last,
                sign * microseconds,
                price,
                version,
                sign * amount(price, microseconds),
                correction.reason if correction else "",
                len(interval.gpus),
            )
        )
    return made


def _at_one_price(
    shape: Shape, start: datetime, stop: datetime, books: Sequence[PriceBook]
) -> list[tuple[datetime, datetime, int, int | None]]:
    """A book that says nothing about this shape divides nothing."""
    found: list[tuple[datetime, datetime, int, int | None]] = []
    for first, last, book in pieces(start, stop, books):
        price, version = price_of(shape, book)
        if found and found[-1][2:] == (price, version):
            first = found.pop()[0]
        found.append((first, last, price, version))
    return found


def total(found: Iterable[Line], key: str = "") -> Total:
    time = gpu_time = cost = 0
    for line in found:
        time += line.microseconds
        gpu_time += line.gpu_microseconds
        cost += line.amount_micros
    return Total(key, time, gpu_time, cost)


def grouped(found: Iterable[Line], by: Callable[[Line], str]) -> list[Total]:
    """The dearest first."""
    groups: dict[str, list[Line]] = {}
    for line in found:
        groups.setdefault(by(line), []).append(line)
    totals = [total(group, key) for key, group in groups.items()]
    return sorted(totals, key=lambda item: (-item.amount_micros, -item.microseconds, item.key))


GROUPS: dict[str, Callable[[Line], str]] = {
    "allocation": lambda line: line.resource_id,
    "user": lambda line: line.user_id or "",
    "offer": lambda line: line.offer,
    "project": lambda line: line.project_id,
}
