"""The head of an answer and its body are one write, and nothing that is written waits for ever."""

import asyncio
from collections.abc import Callable
from typing import Any

from gpuaas.control.http.one_write import _Together


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[bytes | str] = []

    def write(self, data: Any) -> None:
        self.said.append(bytes(data))

    def close(self) -> None:
        self.said.append("closed")


def written(work: Callable[[_Together], None]) -> list[bytes | str]:
    async def run() -> list[bytes | str]:
        transport = Written()
        work(_Together(transport))
        await asyncio.sleep(0)
        return transport.said

    return asyncio.run(run())


def test_head_and_body_travel_together() -> None:
    def both(together: _Together) -> None:
        together.write(b"head ")
        together.write(b"body")

    assert written(both) == [b"head body"]


def test_a_head_alone_leaves_at_the_next_turn() -> None:
    assert written(lambda together: together.write(b"head")) == [b"head"]


def test_no_more_than_one_piece_is_ever_kept() -> None:
    def many(together: _Together) -> None:
        for piece in (b"a", b"b", b"c", b"d", b"e"):
            together.write(piece)

    assert written(many) == [b"ab", b"cd", b"e"]


def test_what_is_written_before_the_end_is_sent() -> None:
    def last(together: _Together) -> None:
        together.write(b"last words")
        together.close()

    assert written(last) == [b"last words", "closed"]
