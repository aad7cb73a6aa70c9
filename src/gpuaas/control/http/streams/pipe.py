"""Two WebSockets become one: every frame goes over as it came, one at a time in each direction.

Nothing is kept here. A frame is read when the one before it was taken by the other side, so that a slow reader slows
down the writer at the far end, through the TCP windows of both connections.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from litestar import WebSocket
from litestar.exceptions import WebSocketDisconnect

from gpuaas.wire.streams import DONE, NODE_FAILED, Close, close

Socket = WebSocket[Any, Any, Any]
# What sending to a connection that is gone raises: Litestar's word, the server's (an OSError), and the one for a
# connection that we closed ourselves.
GONE = (WebSocketDisconnect, OSError, RuntimeError)


async def pipe(user: Socket, node: Socket, until: Coroutine[Any, Any, Close]) -> Close:
    """Runs until one end hangs up or `until` says so; returns what the user is to be told."""
    tasks = [asyncio.create_task(work) for work in (_copy(node, user), _left(user, node), until)]
    try:
        while True:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ending = next((found for task in done if (found := task.result()) is not None), None)
            if ending is not None:
                return ending
            tasks = [task for task in tasks if task not in done]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def hang_up(socket: Socket, told: Close) -> None:
    with contextlib.suppress(*GONE):
        await socket.close(told.code, told.reason)


async def _left(user: Socket, node: Socket) -> Close | None:
    return None if await _copy(user, node) is None else Close(DONE)


async def _copy(source: Socket, target: Socket) -> Close | None:
    """How the source ended. None: the target is gone; it said why behind its last bytes, which the other way reads."""
    while True:
        event: Any = await source.receive()
        if event["type"] != "websocket.receive":
            return close(event.get("code") or NODE_FAILED, event.get("reason") or "")
        data = event.get("bytes")
        if data is None:
            continue  # text means nothing here, least of all the end
        try:
            await target.send_bytes(data)
        except GONE:
            return None
