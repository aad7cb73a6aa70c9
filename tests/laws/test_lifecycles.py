"""The laws that every lifecycle table obeys, whatever it describes."""

from collections import Counter

import pytest

from gpuaas.model.lifecycle import ALL, ALLOCATION, COSTING, PREVIOUS, STAYS, Lifecycle

every_lifecycle = pytest.mark.parametrize("lifecycle", ALL, ids=lambda lifecycle: lifecycle.name)


def ways(lifecycle: Lifecycle) -> set[tuple[str, str]]:
    """(from, to) for every row that moves; PREVIOUS leads back to each state from which this one is entered."""
    found = set()
    for row in lifecycle.rows:
        if row.becomes == PREVIOUS:
            found |= {(row.while_, entry.while_) for entry in lifecycle.rows if entry.becomes == row.while_}
        elif row.becomes != STAYS:
            found.add((row.while_, row.becomes))
    return found


def closure(start: set[str], edges: set[tuple[str, str]]) -> set[str]:
    reached = set(start)
    while more := {to for source, to in edges if source in reached} - reached:
        reached |= more
    return reached


def test_names_are_unique() -> None:
    assert len({lifecycle.name for lifecycle in ALL}) == len(ALL)


@every_lifecycle
def test_every_state_is_reached_from_the_initial_one(lifecycle: Lifecycle) -> None:
    assert closure({lifecycle.initial}, ways(lifecycle)) == lifecycle.states


@every_lifecycle
def test_every_state_can_end(lifecycle: Lifecycle) -> None:
    backwards = {(to, source) for source, to in ways(lifecycle)}
    assert closure(set(lifecycle.ends), backwards) == lifecycle.states


@every_lifecycle
def test_an_end_is_final_and_nothing_else_is(lifecycle: Lifecycle) -> None:
    with_a_way_out = {row.while_ for row in lifecycle.rows if row.becomes != STAYS}
    assert lifecycle.ends == lifecycle.states - with_a_way_out
    assert all(lifecycle.allowed(end) == () for end in lifecycle.ends)


@every_lifecycle
def test_an_event_means_one_thing_in_a_state(lifecycle: Lifecycle) -> None:
    counts = Counter((row.while_, row.on) for row in lifecycle.rows)
    assert [key for key, count in counts.items() if count > 1] == []


@every_lifecycle
def test_every_row_says_why(lifecycle: Lifecycle) -> None:
    assert [row for row in lifecycle.rows if not row.why.strip()] == []


@every_lifecycle
def test_previous_is_unambiguous(lifecycle: Lifecycle) -> None:
    """Whoever says "back" was entered from elsewhere (or the memory is overwritten), and not from an end."""
    for state in (row.while_ for row in lifecycle.rows if row.becomes == PREVIOUS):
        entered_from = {row.while_ for row in lifecycle.rows if row.becomes == state}
        assert entered_from
        assert state not in {lifecycle.initial, *entered_from}
        assert not entered_from & lifecycle.ends


@every_lifecycle
def test_allowed_offers_actions_only_and_each_leads_somewhere(lifecycle: Lifecycle) -> None:
    for state in lifecycle.states:
        for action in lifecycle.allowed(state):
            assert action in lifecycle.actions
            assert lifecycle.next(state, action) is not None


@every_lifecycle
def test_every_action_is_in_the_table(lifecycle: Lifecycle) -> None:
    assert lifecycle.actions <= {row.on for row in lifecycle.rows}


@every_lifecycle
def test_next_is_the_table_and_nothing_else(lifecycle: Lifecycle) -> None:
    rows = {(row.while_, row.on): row.becomes for row in lifecycle.rows}
    events = {row.on for row in lifecycle.rows} | {"no such event"}
    for state in lifecycle.states | {"no such state"}:
        for event in events:
            assert lifecycle.next(state, event) == rows.get((state, event))
            assert (state in lifecycle.while_(event)) == ((state, event) in rows)


@every_lifecycle
def test_what_moves_nothing_is_a_persons_action_and_moves_nothing_anywhere(lifecycle: Lifecycle) -> None:
    staying = {row.on for row in lifecycle.rows if row.becomes == STAYS}
    assert staying <= lifecycle.actions
    assert {row.becomes for row in lifecycle.rows if row.on in staying} <= {STAYS}


def test_only_states_of_an_allocation_cost() -> None:
    assert ALLOCATION.states - ALLOCATION.ends >= COSTING
