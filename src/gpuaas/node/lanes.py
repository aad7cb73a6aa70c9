"""What has nothing to do with each other may be done at the same time: one lane after the other, or side by side."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

Lane = Callable[[], Any]
Lanes = Callable[[Sequence[Lane]], Iterator[Any]]


def in_turn(lanes: Sequence[Lane]) -> Iterator[Any]:
    """One is begun when the answer to the one before was taken: whoever stops asking leaves the rest undone."""
    return (lane() for lane in lanes)


def side_by_side(pool: ThreadPoolExecutor) -> Lanes:
    """All of them at once, and all have ended when the first answer is there. Lanes must not ask for lanes."""

    def run(lanes: Sequence[Lane]) -> Iterator[Any]:
        if len(lanes) == 1:
            return in_turn(lanes)
        others = [pool.submit(lane) for lane in lanes[1:]]
        try:
            first = lanes[0]()
        finally:
            wait(others)
        return iter([first, *(other.result() for other in others)])

    return run
