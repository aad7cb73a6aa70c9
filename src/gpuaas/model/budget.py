"""What somebody means to spend in a calendar month, and when they want to hear about it."""

from dataclasses import dataclass

ALERTS = (50, 80, 100)  # percent


@dataclass(frozen=True)
class Budget:
    id: str
    org_id: str
    project_id: str | None  # None: the org with all its projects
    amount_micros: int
    created_by: str


def reached(amount_micros: int, spent_micros: int) -> list[int]:
    """The alerts whose time has come, in percent."""
    return [percent for percent in ALERTS if spent_micros * 100 >= amount_micros * percent]
