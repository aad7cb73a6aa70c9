"""How many streams this replica carries, in all and for one person."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gpuaas.kit.errors import Problem

MOST_PER_USER = 64
MOST = 1000


class Room:
    def __init__(self, most: int = MOST, most_per_user: int = MOST_PER_USER) -> None:
        self._most = most
        self._most_per_user = most_per_user
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, user_id: str) -> Iterator[None]:
        if self._taken[user_id] >= self._most_per_user:
            raise _refused(f"You have {self._taken[user_id]} streams open.", "Close some of them first.")
        if self._taken.total() >= self._most:
            raise _refused("This server carries as many streams as it can.", "Connect directly, or try again later.")
        self._taken[user_id] += 1
        try:
            yield
        finally:
            self._taken[user_id] -= 1
            if not self._taken[user_id]:
                del self._taken[user_id]


def _refused(message: str, hint: str) -> Problem:
    return Problem("stream_refused", 429, message, hint)
