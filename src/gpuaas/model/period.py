"""Calendar months in UTC: what budgets and statements are about."""

from datetime import UTC, datetime


def month_of(moment: datetime) -> tuple[datetime, datetime]:
    """The month that a moment lies in: its beginning, and that of the next one."""
    begin = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, after(begin)


def after(begin: datetime) -> datetime:
    """The beginning of the month after the one that begins here."""
    return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
