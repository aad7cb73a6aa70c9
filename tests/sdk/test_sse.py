"""Frames come out the same wherever the network cut the bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaas.sdk.sse import MAX_FRAME_BYTES, Frame, Parser

STREAM = (
    ": hello\n\n"
    'id: 1\nevent: operation\ndata: {"a": 1}\n\n'
    ": ping\n\n"
    "event: two\r\ndata: first\r\ndata: sécond\r\n\r\n"
    "data:tight\r\r"
    "id: 9\n\n"
    "id: bad\0id\ndata\nretry: 3\n\n"
    "event: never finished\ndata: x"
).encode()
FRAMES = [
    Frame("operation", '{"a": 1}', "1"),
    Frame("two", "first\nsécond", "1"),
    Frame("message", "tight", "1"),
    Frame("message", "", "9"),
]


def parsed(chunks: list[bytes]) -> list[Frame]:
    parser = Parser()
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


def test_whole() -> None:
    assert parsed([STREAM]) == FRAMES


def test_byte_by_byte() -> None:
    assert parsed([STREAM[i : i + 1] for i in range(len(STREAM))]) == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_cut_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert parsed([STREAM[a:b] for a, b in pairwise(edges)]) == FRAMES


def test_an_id_without_data_moves_the_place_to_resume_from() -> None:
    parser = Parser("3")
    assert parser.feed(b"id: 17\n\n") == []
    assert parser.last_id == "17"


def test_an_endless_line_is_refused() -> None:
    parser = Parser()
    parser.feed(b"x" * (MAX_FRAME_BYTES // 2))
    with pytest.raises(ValueError, match="too large"):
        parser.feed(b"x" * MAX_FRAME_BYTES)
