"""Where the two ends of a stream meet: a ticket is good for one dial-back, of one node, to one machine, for 15 s.

Held in the memory of the replica that has the user: a ticket means nothing without the connection that waits for it.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuaas.kit.clock import Clock
from gpuaas.wire.streams import TICKET_SECONDS

T = TypeVar("T")


@dataclass(frozen=True)
class Meeting(Generic[T]):
    """`came` gets the node's end; whoever brings it stays until `over`, because its connection ends with it."""

    ticket: str = field(repr=False)
    node_id: str
    allocation_id: str
    expires_at: float
    came: asyncio.Future[T]
    over: asyncio.Event


class Tickets(Generic[T]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, Meeting[T]] = {}

    @contextmanager
    def issue(self, node_id: str, allocation_id: str) -> Iterator[Meeting[T]]:
        """Whatever happens inside, afterwards the ticket is worth nothing and the node's end is let go."""
        came: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        expires_at = self._clock.boottime() + TICKET_SECONDS
        meeting = Meeting(secrets.token_urlsafe(32), node_id, allocation_id, expires_at, came, asyncio.Event())
        self._waiting[meeting.ticket] = meeting
        try:
            yield meeting
        finally:
            self._waiting.pop(meeting.ticket, None)
            came.cancel()
            meeting.over.set()

    def redeem(self, ticket: str, node_id: str, allocation_id: str) -> Meeting[T] | None:
        """Once. A ticket in the wrong hands is burnt, not given back."""
        meeting = self._waiting.pop(ticket, None)
        if meeting is None or meeting.expires_at <= self._clock.boottime():
            return None
        if (meeting.node_id, meeting.allocation_id) != (node_id, allocation_id):
            return None
        return meeting
