"""Times and months as people write them."""

from datetime import UTC, datetime

from gpuaas.kit.errors import invalid


def moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise invalid(f"There is no such time as {text}.", "Write it like 2030-01-31T12:00:00Z.") from error
    if not 2000 <= found.year < 2200:
        raise invalid(f"{text} is not a time of this service.", "Write it like 2030-01-31T12:00:00Z.")
    return found


def first_of(text: str) -> datetime:
    """The beginning of a month; the pattern of the parameter has seen to the form."""
    return datetime(int(text[:4]), int(text[5:]), 1, tzinfo=UTC)
