"""How often and how soon a version of an object is tried again. Kept in memory only: a fresh agent tries at once."""

from dataclasses import dataclass

from gpuaas.node.record import Version

ATTEMPTS = 3  # of a version that has never been good
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 60.0


@dataclass(frozen=True)
class Retry:
    version: Version
    count: int
    at: float  # boottime

    def is_waiting(self, now: float) -> bool:
        return now < self.at


def after_failure(previous: Retry | None, version: Version, now: float) -> Retry:
    count = previous.count + 1 if previous is not None and previous.version == version else 1
    # The exponent is bounded, because a machine can fail for months.
    delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** min(count - 1, 16))
    return Retry(version, count, now + delay)
