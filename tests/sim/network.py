"""The wire between one agent and one server: two queues of encoded frames that can lose, double and reorder."""

import random
from dataclasses import dataclass, field

from gpuaas.control.link.cursor import Cursor
from gpuaas.control.link.session import Session
from gpuaas.wire.node import FromAgent, FromServer, encode


@dataclass
class Connection:
    agent: str
    server: str
    nonce: str
    session: Session | None = None
    cursor: Cursor = field(default_factory=Cursor)
    woken: bool = True
    busy: bool = False  # the server works on a frame; it takes them one by one
    pushing: bool = False
    open: bool = True
    to_server: list[bytes] = field(default_factory=list)
    to_agent: list[bytes] = field(default_factory=list)

    def up(self, frames: list[FromAgent]) -> None:
        self.to_server.extend(encode(frame) for frame in frames)

    def down(self, frames: list[FromServer]) -> None:
        self.to_agent.extend(encode(frame) for frame in frames)

    def lose(self, rng: random.Random) -> None:
        queue = self._some(rng)
        if queue:
            queue.pop(rng.randrange(len(queue)))

    def double(self, rng: random.Random) -> None:
        queue = self._some(rng)
        if queue:
            queue.insert(rng.randrange(len(queue) + 1), rng.choice(queue))

    def reorder(self, rng: random.Random) -> None:
        queue = self._some(rng)
        if queue:
            queue.insert(rng.randrange(len(queue)), queue.pop())

    def _some(self, rng: random.Random) -> list[bytes]:
        return self.to_server if rng.random() < 0.5 else self.to_agent
