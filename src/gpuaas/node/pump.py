"""Moves bytes between a WebSocket and a machine's socket. A side that does not take them stops the other one."""

import asyncio
import contextlib
import socket

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from gpuaas.wire.streams import CHUNK_BYTES, DONE, END

FLUSH_SECONDS = 10.0  # what the machine has to take the last bytes, after the user left
USER, MACHINE = "user", "machine"


async def pump(user: ClientConnection, machine: socket.socket) -> None:
    """Until the machine has said everything, or the user is gone. Closes both."""
    reader, writer = await asyncio.open_connection(sock=machine, limit=CHUNK_BYTES)
    tasks = [asyncio.create_task(_to_user(reader, user)), asyncio.create_task(_to_machine(user, writer))]
    try:
        for finished in asyncio.as_completed(tasks):
            if ended := await finished:
                break
        if ended == MACHINE:
            await user.close(DONE)
        else:
            await _let_go(writer)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.transport.abort()


# Each way knows for certain only how its own source ended. One whose target is gone leaves the verdict to the other
# way, which still has the target's last bytes to read.


async def _to_user(reader: asyncio.StreamReader, user: ClientConnection) -> str:
    try:
        while data := await reader.read(CHUNK_BYTES):
            await user.send(data)
    except ConnectionClosed:
        return ""
    except OSError:
        return MACHINE  # a reset is an end too
    return MACHINE


async def _to_machine(user: ClientConnection, writer: asyncio.StreamWriter) -> str:
    try:
        async for data in user:
            if data and isinstance(data, bytes):
                writer.write(data)
                await writer.drain()
            elif data == END:
                writer.write_eof()
    except ConnectionClosed:
        return USER
    except (OSError, RuntimeError):  # RuntimeError: more after the end
        return ""
    return USER


async def _let_go(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(FLUSH_SECONDS):
            await writer.wait_closed()
