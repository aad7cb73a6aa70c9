"""Who is next: fair between projects, by priority within one. Deciding, without any clock.

The project that has used least lately is served first; each place that it gets in the line counts as use. A project's
own priorities order its own requests: nobody passes another tenant by asking for more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

RECENT = timedelta(hours=24)
MOST_WAITING = 200  # launches of one project; those that come at the same moment may be a few more
EXPECTED_SECONDS = 3600.0  # what a place in the line counts for, for each GPU


@dataclass(frozen=True)
class Ticket:
    """A group of machines that waits for its place. `reasons` is why it did not fit when it was last tried."""

    group_id: str
    org_id: str
    project_id: str
    offer_id: str
    gpu_model: str
    gpus: int  # of the whole group
    priority: int
    reasons: list[dict[str, object]]
    created_at: datetime
    expires_at: datetime | None
    preemptible: bool = False  # nothing is kept free for it, and nobody gives way to it


def order(tickets: Sequence[Ticket], used_gpu_seconds: Mapping[str, float]) -> list[Ticket]:
    """By recent use of the project, then by its priorities, then by age."""
    waiting: dict[str, list[Ticket]] = {}
    for ticket in sorted(tickets, key=lambda item: (-item.priority, item.created_at, item.group_id)):
        waiting.setdefault(ticket.project_id, []).append(ticket)
    used = {project: used_gpu_seconds.get(project, 0.0) for project in waiting}
    line: list[Ticket] = []
    while waiting:
        project = min(waiting, key=lambda item: (used[item], waiting[item][0].created_at, item))
        ticket = waiting[project].pop(0)
        used[project] += ticket.gpus * EXPECTED_SECONDS
        if not waiting[project]:
            del waiting[project]
        line.append(ticket)
    return line
