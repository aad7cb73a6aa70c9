from contextlib import ExitStack

import pytest

from gpuaas.control.http.streams.room import Room
from gpuaas.kit.errors import Problem


def test_one_person_and_all_together_have_a_limit() -> None:
    room = Room(most=3, most_per_user=2)
    with ExitStack() as streams:
        streams.enter_context(room.taken("ada"))
        streams.enter_context(room.taken("ada"))
        with pytest.raises(Problem, match="You have 2 streams open") as refused, room.taken("ada"):
            pass
        assert (refused.value.code, refused.value.status) == ("stream_refused", 429)
        with room.taken("bob"), pytest.raises(Problem, match="as many streams"), room.taken("cy"):
            pass
        with room.taken("cy"):
            pass
    with room.taken("ada"), room.taken("bob"), room.taken("cy"):
        pass
