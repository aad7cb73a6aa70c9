"""Growing, jittered pauses between attempts to reach the server."""

import random

SHORTEST_SECONDS = 0.2
LONGEST_SECONDS = 10.0


class Backoff:
    def __init__(self) -> None:
        self._ceiling = SHORTEST_SECONDS

    def next(self) -> float:
        """Between half and all of a ceiling that doubles, so that a fleet does not come back in one instant."""
        pause = random.uniform(self._ceiling / 2, self._ceiling)  # noqa: S311
        self._ceiling = min(LONGEST_SECONDS, self._ceiling * 2)
        return pause

    def reset(self) -> None:
        self._ceiling = SHORTEST_SECONDS
