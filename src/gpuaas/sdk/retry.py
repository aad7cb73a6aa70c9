"""How often, and how long apart, a call is tried again. Every source of time and chance can be replaced."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Retry:
    """Waits double from `first_seconds`, each between half and all of that, so that clients do not return together."""

    attempts: int = 5
    first_seconds: float = 0.1
    longest_seconds: float = 2.0
    longest_asked_seconds: float = 30.0  # a server that asks for more is reported instead of waited for
    patience_seconds: float = 90.0  # how long a followed stream may stay away
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def pause_seconds(self, failures: int) -> float:
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures - 1, 16))
        return full * (0.5 + 0.5 * self.chance())


def asked_seconds(retry_after: str | None) -> float | None:
    """The Retry-After header in seconds. A date is answered like "soon": clocks differ."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1.0
