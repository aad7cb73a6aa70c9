"""The heartbeats of all nodes that are linked to this server.

Those that arrive while others are being written are written together: a thousand nodes cost a few transactions a
second, not a thousand. A heartbeat that means more than "still there" is left to the connection that it came from.

So is one whose node somebody works on for long. Before that it is tried again with the next ones: whoever waits for a
node waits on a thread, and while many machines are launched together, many nodes are locked that beat all the same.
"""

import asyncio
import contextlib
import time

from gpuaas.control.link import session as deciding
from gpuaas.control.link.session import Session
from gpuaas.control.store.transaction import Store
from gpuaas.wire.node import Heartbeat

PATIENCE_SECONDS = 2.0
PAUSE_SECONDS = 0.05

_Beat = tuple[Session, Heartbeat, float]  # and when it came


class Pulse:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Future[int | None], _Beat] = {}
        self._writing: asyncio.Task[None] | None = None

    async def beat(self, session: Session, frame: Heartbeat) -> int | None:
        """The newest revision of the node's specs. None: there is more to it, ask `session.receive`."""
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = (session, frame, time.monotonic())
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await answer

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            try:
                frames = [(session, frame) for session, frame, _ in batch.values()]
                heard = await asyncio.to_thread(self._store.transact, deciding.heartbeats, frames)
            except Exception as error:  # an outer loop: every connection hears of it, and leaves its frame
                for answer in batch:
                    with contextlib.suppress(asyncio.InvalidStateError):  # its connection ended meanwhile
                        answer.set_exception(error)
            else:
                busy = {id for id, revision in heard.items() if revision is None}
                again = {answer: beat for answer, beat in batch.items() if beat[0].node_id in busy and _patient(beat)}
                for answer in batch.keys() - again.keys():
                    with contextlib.suppress(asyncio.InvalidStateError):
                        answer.set_result(heard.get(batch[answer][0].node_id))
                if again:
                    self._waiting |= {answer: beat for answer, beat in again.items() if not answer.done()}
                    await asyncio.sleep(PAUSE_SECONDS)


def _patient(beat: _Beat) -> bool:
    return time.monotonic() - beat[2] < PATIENCE_SECONDS
