"""Who is next."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuaas.model.queue import EXPECTED_SECONDS, Ticket, order

THEN = datetime(2030, 1, 1, tzinfo=UTC)


def ticket(name: str, project: str = "a", minutes: int = 0, priority: int = 5, gpus: int = 1) -> Ticket:
    return Ticket(name, "og", project, "of", "H100", gpus, priority, [], THEN + timedelta(minutes=minutes), None)


def names(tickets: list[Ticket], **used: float) -> list[str]:
    return [item.group_id for item in order(tickets, used)]


def test_first_come_first_served_in_one_project() -> None:
    assert names([ticket("late", minutes=2), ticket("early", minutes=1)]) == ["early", "late"]


def test_a_projects_priorities_order_its_own() -> None:
    assert names([ticket("plain", minutes=1), ticket("urgent", minutes=2, priority=9)]) == ["urgent", "plain"]


def test_nobody_passes_another_project_by_priority() -> None:
    assert names([ticket("theirs", "b", 1), ticket("mine", "a", 2, priority=9)], a=100.0, b=0.0) == ["theirs", "mine"]


def test_who_has_used_least_goes_first() -> None:
    assert names([ticket("heavy", "a", 1), ticket("light", "b", 2)], a=9000.0, b=10.0) == ["light", "heavy"]


def test_projects_take_turns() -> None:
    many = [ticket(f"a{n}", "a", n) for n in range(3)] + [ticket(f"b{n}", "b", 10 + n) for n in range(2)]
    assert names(many) == ["a0", "b0", "a1", "b1", "a2"]


def test_a_large_group_counts_for_more_than_a_small_one() -> None:
    many = [ticket("big", "a", 0, gpus=8), ticket("next", "a", 1), *(ticket(f"b{n}", "b", 2 + n) for n in range(3))]
    assert names(many)[:4] == ["big", "b0", "b1", "b2"]


tickets = st.lists(
    st.builds(
        ticket,
        name=st.uuids().map(str),
        project=st.sampled_from("abc"),
        minutes=st.integers(0, 5),
        priority=st.integers(0, 9),
        gpus=st.integers(1, 8),
    ),
    max_size=12,
)


@given(tickets, st.dictionaries(st.sampled_from("abc"), st.floats(0, 10 * EXPECTED_SECONDS)))
def test_everybody_is_in_the_line_once(found: list[Ticket], used: dict[str, float]) -> None:
    line = order(found, used)
    assert sorted(item.group_id for item in line) == sorted(item.group_id for item in found)
    assert line == order(list(reversed(found)), used)
    for project in "abc":
        mine = [item for item in line if item.project_id == project]
        assert mine == sorted(mine, key=lambda item: (-item.priority, item.created_at, item.group_id))
