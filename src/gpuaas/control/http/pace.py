"""Wrong passwords slow down who tries them: one account from one address, twice as long each time.

Nobody is locked out: the first try from an address is never made to wait, however many others are guessing. While many
guess at one account, an address has that one try instead of a few. In the memory of this replica, for the pairs seen
last; also for accounts that do not exist, so that it says nothing about them.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from gpuaas.control.http.limits import MOST_REMEMBERED, network, too_often
from gpuaas.kit.clock import Clock

K = TypeVar("K")

FREE = 5
LONGEST_SECONDS = 300.0
FORGOTTEN_SECONDS = 3600.0
UNDER_ATTACK = 50  # failures on one account within FORGOTTEN_SECONDS


@dataclass
class Tries:
    failures: int = 0
    last_at: float = 0.0


class Pace:
    def __init__(self, clock: Clock, *, off: bool = False) -> None:
        self._clock = clock
        self._off = off
        self._pairs: OrderedDict[tuple[str, str], Tries] = OrderedDict()
        self._accounts: OrderedDict[str, Tries] = OrderedDict()
        self._lock = threading.Lock()

    def attempt(self, account: str, address: str) -> None:
        """Counts as wrong until `right` says otherwise, so that many at once gain nothing."""
        if self._off:
            return
        account, now = account.lower(), self._clock.boottime()
        with self._lock:
            guessed = _fresh(self._accounts, account, now)
            tries = _fresh(self._pairs, (account, network(address)), now)
            wait = tries.last_at + self._pause(tries.failures, guessed.failures) - now
            if tries.failures and wait > 0:
                raise too_often(wait, "Too many wrong passwords for this account from your address.")
            for counted in (guessed, tries):
                counted.failures += 1
                counted.last_at = now

    def right(self, account: str, address: str) -> None:
        account = account.lower()
        with self._lock:
            tries = self._pairs.pop((account, network(address)), None)
            if tries and account in self._accounts:
                self._accounts[account].failures = max(0, self._accounts[account].failures - tries.failures)

    def _pause(self, failures: int, guessed: int) -> float:
        free = 1 if guessed >= UNDER_ATTACK else FREE
        return 0.0 if failures < free else float(min(LONGEST_SECONDS, 2 ** min(failures - free, 20)))


def _fresh(kept: OrderedDict[K, Tries], key: K, now: float) -> Tries:
    tries = kept.get(key)
    if tries is None or now - tries.last_at > FORGOTTEN_SECONDS:
        tries = kept[key] = Tries(last_at=now)
    kept.move_to_end(key)
    while len(kept) > MOST_REMEMBERED:
        kept.popitem(last=False)
    return tries
