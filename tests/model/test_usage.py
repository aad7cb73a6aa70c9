"""Lines: exact, cut where prices change, and always the same."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuaas.model.period import month_of
from gpuaas.model.price import PriceBook, Prices, Shape, amount, price_of
from gpuaas.model.statement import digest
from gpuaas.model.usage import GROUPS, Correction, Interval, grouped, lines, total

DAY = datetime(2030, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ONE = Shape("h100-1", "H100", 1, 16, 131072, 2_500_000)
FOUR = Shape("h100-4", "H100", 4, 64, 524288, 10_000_000)


def interval(start: datetime, end: datetime | None, shape: Shape = ONE, **more: Any) -> Interval:
    made = Interval("ug-1", "og-1", "pj-1", "al-1", "us-1", "allocation", shape, ("GPU-1",), start, end)
    return replace(made, **more)


def book(version: int, valid_from: datetime, **prices: Any) -> PriceBook:
    return PriceBook(version, valid_from, Prices(**prices), "", "us-1", valid_from)


def test_a_book_that_changes_in_the_middle_splits_the_price_and_not_the_interval() -> None:
    books = [book(1, DAY, offers={"h100-1": 2_000_000}), book(2, DAY + HOUR / 4, offers={"h100-1": 4_000_000})]
    found = lines([interval(DAY, DAY + HOUR)], [], books, DAY, DAY + 2 * HOUR, DAY + 2 * HOUR)
    assert [(line.price_book, line.microseconds, line.amount_micros) for line in found] == [
        (1, 900_000_000, 500_000),
        (2, 2_700_000_000, 3_000_000),
    ]
    assert {line.usage_id for line in found} == {"ug-1"}


def test_another_shape_within_the_hour_is_charged_as_what_it_was_each_time() -> None:
    first = interval(DAY, DAY + timedelta(minutes=10))
    four = ("GPU-1", "GPU-2", "GPU-3", "GPU-4")
    second = interval(DAY + timedelta(minutes=10), DAY + timedelta(minutes=25), FOUR, id="ug-2", gpus=four)
    found = lines([first, second], [], [], DAY, DAY + HOUR, DAY + HOUR)
    assert [line.amount_micros for line in found] == [416_667, 2_500_000]
    assert total(found).gpu_microseconds == (10 + 4 * 15) * 60 * 1_000_000


def test_the_newest_version_counts_once_its_time_has_come_even_if_an_older_one_was_planned() -> None:
    books = [book(1, DAY + 2 * HOUR, gpus={"H100": 9}), book(2, DAY + HOUR, gpus={"H100": 3_600})]
    found = lines([interval(DAY, DAY + 4 * HOUR)], [], books, DAY, DAY + 4 * HOUR, DAY + 4 * HOUR)
    assert [(line.price_book, line.amount_micros) for line in found] == [(None, 2_500_000), (2, 10_800)]


def test_prices_by_parts() -> None:
    parts = book(1, DAY, gpus={"H100": 2_000_000}, cpu=10_000, memory_gib=1_000)
    assert price_of(FOUR, parts) == (4 * 2_000_000 + 64 * 10_000 + 512 * 1_000, 1)
    assert price_of(replace(ONE, gpu_model="B200"), parts) == (2_500_000, None)  # nobody has said what a B200 costs
    assert price_of(replace(ONE, gpu_model="", gpu_count=0), parts) == (16 * 10_000 + 128 * 1_000, 1)
    assert price_of(ONE, book(2, DAY, offers={"h100-1": 0}, gpus={"H100": 7})) == (0, 2)  # free is a price


@pytest.mark.parametrize(("micros", "microseconds", "expected"), [(1, 1_800_000_000, 1), (1, 1_799_999_999, 0)])
def test_rounding_is_to_the_nearest_halves_up(micros: int, microseconds: int, expected: int) -> None:
    assert amount(micros, microseconds) == expected


def test_a_period_takes_what_lies_in_it_and_nothing_is_lost_between_two() -> None:
    rng = random.Random(7)
    books = [book(n + 1, DAY + rng.random() * 9 * HOUR, offers={"h100-1": rng.randrange(10**7)}) for n in range(4)]
    at, ledger = DAY, []
    for n in range(50):
        start = at + timedelta(microseconds=rng.randrange(10**9))
        at = start + timedelta(microseconds=rng.randrange(10**9))
        ledger.append(interval(start, at, id=f"ug-{n}", resource_id=f"al-{n % 7}", user_id=f"us-{n % 3}"))
    end = DAY + 20 * HOUR
    whole = lines(ledger, [], books, DAY, end, end)
    middle = DAY + 3 * HOUR
    halves = lines(ledger, [], books, DAY, middle, end) + lines(ledger, [], books, middle, end, end)
    assert total(whole).microseconds == total(halves).microseconds
    assert abs(total(whole).amount_micros - total(halves).amount_micros) <= 1  # at most one line is cut in two
    for by in GROUPS.values():
        groups = grouped(whole, by)
        assert sum(group.amount_micros for group in groups) == total(whole).amount_micros
        assert sum(group.microseconds for group in groups) == total(whole).microseconds


def test_what_is_open_costs_until_now() -> None:
    still = [interval(DAY, None)]
    for hours in (1, 2, 3):
        found = lines(still, [], [], DAY, DAY + 2 * HOUR, DAY + hours * HOUR)
        assert total(found).amount_micros == min(hours, 2) * 2_500_000


def test_a_correction_is_counted_when_it_was_recorded_at_the_prices_of_its_time() -> None:
    charged = interval(DAY, DAY + 3 * HOUR)
    books = [book(1, DAY + HOUR, offers={"h100-1": 1_000_000})]
    made = Correction("uc-1", "ug-1", "pj-1", DAY, DAY + 2 * HOUR, "slow", "us-9", DAY + 40 * HOUR)
    first = lines([charged], [(made, charged)], books, DAY, DAY + 24 * HOUR, DAY + 48 * HOUR)
    second = lines([], [(made, charged)], books, DAY + 24 * HOUR, DAY + 48 * HOUR, DAY + 48 * HOUR)
    assert total(first).amount_micros == 2_500_000 + 2 * 1_000_000
    assert [(line.amount_micros, line.microseconds, line.reason) for line in second] == [
        (-2_500_000, -3_600_000_000, "slow"),
        (-1_000_000, -3_600_000_000, "slow"),
    ]


def test_a_statement_has_one_hash_and_any_difference_another() -> None:
    found = lines([interval(DAY, DAY + HOUR)], [], [], DAY, DAY + HOUR, DAY + HOUR)
    begin, end = month_of(DAY)
    assert (begin, end) == (DAY, datetime(2030, 4, 1, tzinfo=UTC))
    assert digest("pj-1", begin, end, found) == digest("pj-1", begin, end, list(found))
    assert digest("pj-1", begin, end, [replace(found[0], user_id="us-2")]) != digest("pj-1", begin, end, found)


def test_months() -> None:
    assert month_of(datetime(2030, 12, 31, 23, 59, tzinfo=UTC))[1] == datetime(2031, 1, 1, tzinfo=UTC)


def test_gpu_time_is_of_what_was_held_and_the_price_of_what_was_sold() -> None:
    (line,) = lines([interval(DAY, DAY + HOUR, gpus=("GPU-1", "GPU-2"))], [], [], DAY, DAY + HOUR, DAY + HOUR)
    assert (line.gpu_count, line.gpus_held, line.amount_micros) == (1, 2, ONE.list_price_micros_per_hour)
    assert line.gpu_microseconds == 2 * 3_600_000_000
    alone = replace(line, gpus_held=1)
    assert digest("pj-1", DAY, DAY + HOUR, [alone]) == digest("pj-1", DAY, DAY + HOUR, [line]), (
        "closed ones stay intact"
    )
