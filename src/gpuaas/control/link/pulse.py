"""The heartbeats of all nodes that are linked to this server.

Those that arrive while others are being written are written together: a thousand nodes cost a few transactions a
second, not a thousand. A heartbeat that means more than "still there" is left to the connection that it came from.
"""

import asyncio
import contextlib

from gpuaas.control.link import session as deciding
from gpuaas.control.link.session import Session
from gpuaas.control.store.transaction import Store
from gpuaas.wire.node import Heartbeat

_Beat = tuple[Session, Heartbeat]


class Pulse:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[int | None], _Beat] = {}
        self._writing: asyncio.Task[None] | None = None

    async def beat(self, session: Session, frame: Heartbeat) -> int | None:
        """The newest revision of the node's specs. None: there is more to it, ask `session.receive`."""
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = (session, frame)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await answer

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            try:
                heard = await asyncio.to_thread(self._store.transact, deciding.heartbeats, list(batch.values()))
            except Exception as error:  # an outer loop: every connection hears of it, and leaves its frame
                for answer in batch:
                    with contextlib.suppress(asyncio.InvalidStateError):  # its connection ended meanwhile
                        answer.set_exception(error)
            else:
                for answer, (session, _) in batch.items():
                    with contextlib.suppress(asyncio.InvalidStateError):
                        answer.set_result(heard.get(session.node_id))
