"""How often one caller may ask. Buckets in the memory of this replica: of the callers seen last, and of so many only.

A valid token has a bucket of its own. Everything else counts for the address that it comes from, also a token that is
not valid: who tries tokens is as slow as who has none. With n replicas a caller gets at most n times as much.
"""

import ipaddress
import threading
from collections import OrderedDict
from math import ceil

from gpuaas.control.config import Rates
from gpuaas.control.store.tokens import digest
from gpuaas.kit.clock import Clock
from gpuaas.kit.errors import Problem

MOST_REMEMBERED = 10_000  # callers of each kind; beyond that, the one that was silent longest starts afresh
BURST_SECONDS = 10.0


class Buckets:
    """One bucket per caller, all of one size. Full at first, refilled all the time."""

    def __init__(self, clock: Clock, per_second: float, most: int = MOST_REMEMBERED) -> None:
        self.per_second = per_second
        self.size = max(1.0, per_second * BURST_SECONDS)
        self._clock = clock
        self._most = most
        self._filled: OrderedDict[bytes | str, tuple[float, float]] = OrderedDict()  # how much, and when
        self._lock = threading.Lock()

    def __contains__(self, caller: object) -> bool:
        return caller in self._filled

    def take(self, caller: bytes | str, amount: float = 1.0) -> float:
        """0 when there was enough; else the seconds until there is. A negative amount gives back."""
        now = self._clock.boottime()
        with self._lock:
            level, at = self._filled.get(caller, (self.size, now))
            level = min(self.size, level + (now - at) * self.per_second)
            enough = level >= amount or not self.per_second  # any number: who asks is remembered all the same
            self._filled[caller] = (min(self.size, level - amount) if enough else level, now)
            self._filled.move_to_end(caller)
            while len(self._filled) > self._most:
                self._filled.popitem(last=False)
        return 0.0 if enough else (amount - level) / self.per_second

    def forget(self, caller: bytes | str) -> None:
        with self._lock:
            self._filled.pop(caller, None)


class Limiter:
    def __init__(self, clock: Clock, rates: Rates) -> None:
        self._tokens = Buckets(clock, rates.token)
        self._addresses = Buckets(clock, rates.address)
        self._logins = Buckets(clock, rates.login)
        self._nodes = Buckets(clock, rates.node)

    def admit(self, address: str, secret: str, *, node: bool = False) -> None:
        """Before anything is looked up."""
        token = digest(secret) if secret else b""
        if token and token in self._tokens:
            _refuse(self._tokens.take(token), "this token", self._tokens.per_second)
        elif node:
            _refuse(self._nodes.take(network(address)), "your address", self._nodes.per_second)
        else:
            _refuse(self._addresses.take(network(address)), "your address", self._addresses.per_second)

    def vouch(self, address: str, secret: str) -> None:
        """The token is valid: from now on it counts for itself."""
        token = digest(secret)
        if token not in self._tokens:
            self._tokens.take(token)
            self._addresses.take(network(address), -1.0)

    def doubt(self, secret: str) -> None:
        """It is not, or no longer."""
        self._tokens.forget(digest(secret))

    def admit_login(self, address: str) -> None:
        _refuse(self._logins.take(network(address)), "your address", self._logins.per_second, "log in ")


def network(address: str) -> str:
    """Who has one IPv6 address has 2**64 of them."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))


def _refuse(seconds: float, who: str, per_second: float, what: str = "") -> None:
    if seconds > 0:
        raise too_often(seconds, f"Too many requests: {who} may {what or 'ask '}{per_second:g} times a second.")


def too_often(seconds: float, message: str) -> Problem:
    waiting = max(1, ceil(seconds))
    return Problem("too_many_requests", 429, message, f"Try again in {waiting} s.", extra={"retry_after": waiting})
