"""Amounts and times as people write them. Integer millionths everywhere: nothing here is a float."""

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

import click

MICROS = Decimal(1_000_000)


def amount(micros: int) -> str:
    """To the cent, or finer where it is not a whole number of cents."""
    exact = Decimal(micros) / MICROS
    return f"{exact:,.2f}" if micros % 10_000 == 0 else f"{exact:,.4f}"


def exactly(micros: int) -> str:
    return f"{Decimal(micros) / MICROS:.6f}"


def micros(text: str) -> int:
    """For click's `type=`: an amount like 2.50."""
    try:
        found = Decimal(text.strip()) * MICROS
    except InvalidOperation:
        raise click.BadParameter(f"{text!r} is not an amount like 2.50.") from None
    if not found.is_finite() or found < 0 or found != found.to_integral_value():
        raise click.BadParameter(f"{text!r} is not an amount like 2.50: at most six decimals, not negative.")
    return int(found)


def priced(text: str) -> tuple[str, int]:
    """For click's `type=`: a name and its price, like h100-1=2.50."""
    name, equals, price = text.rpartition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not a name and its price, like h100-1=2.50.")
    return name, micros(price)


def moment(text: str) -> datetime:
    """For click's `type=`: a day (UTC), or a time as RFC 3339 writes it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a day like 2030-01-31 or a time like 2030-01-31T12:00Z.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def month(text: str) -> str:
    """For click's `type=`: a month like 2030-01."""
    try:
        datetime.strptime(text, "%Y-%m")
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a month like 2030-01.") from None
    return text


def bounds(month: str) -> tuple[datetime, datetime]:
    year, number = int(month[:4]), int(month[5:])
    return datetime(year, number, 1, tzinfo=UTC), datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
