"""The node's lease on the server: what closes when the two have not heard of each other for too long.

Counted on CLOCK_BOOTTIME from the moment the acknowledged heartbeat was *sent*, so that it never outlasts what the
server believes. Not kept anywhere: a fresh agent holds no lease until its first heartbeat is acknowledged.
"""

from gpuaas.kit.clock import Clock


class Lease:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: float | None = None

    def renew(self, sent_at: float, seconds: float) -> None:
        """Never shortens: acknowledgements may come late and in any order."""
        until = sent_at + seconds
        if seconds > 0 and (self._until is None or until > self._until):
            self._until = until

    def held(self) -> bool:
        return self._until is not None and self._clock.boottime() < self._until

    @property
    def until(self) -> float | None:
        return self._until
