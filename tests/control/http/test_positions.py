"""Positions in the feed of an org: there and back, and nothing that was made up."""

import pytest

from gpuaas.control.http.positions import MOST_PROJECTS, decoded, encoded
from gpuaas.kit.errors import Problem
from gpuaas.kit.ids import Ids


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, MOST_PROJECTS])
def test_there_and_back(count: int) -> None:
    position = {Ids().new("pj"): number * 2_000_000_000 for number in range(count)}
    assert decoded(encoded(position)) == dict(sorted(position.items()))
    assert len(encoded(position)) <= 8100


def test_too_many_projects_are_refused() -> None:
    with pytest.raises(Problem) as refused:
        encoded({Ids().new("pj"): 1 for _ in range(MOST_PROJECTS + 1)})
    assert refused.value.code == "too_many_projects"


def test_what_was_made_up_is_refused() -> None:
    good = encoded({Ids().new("pj"): 5})
    for bad in ("", "x", "12", good[:-1], good[1:], good[:-4] + "AAAA", good + "AAAA", "é"):
        with pytest.raises(Problem) as refused:
            decoded(bad)
        assert refused.value.code == "bad_position"
