"""What the server wants people on a machine to read. Nothing here ever disturbs the link."""

import asyncio
import logging

from gpuaas.kit.errors import HostError
from gpuaas.node.host.interface import Host
from gpuaas.wire.node import Notice

log = logging.getLogger(__name__)


class Notices:
    """`wanted` is where the link puts what it is told."""

    def __init__(self, host: Host) -> None:
        self.wanted: asyncio.Queue[Notice] = asyncio.Queue()
        self._host = host

    async def keep(self) -> None:
        """Until cancelled. One after the other: there is no hurry, and a terminal is never waited for."""
        while True:
            notice = await self.wanted.get()
            try:
                told = await asyncio.to_thread(self._host.notify, notice.id, notice.text)
                log.info("a notice", extra={"fields": {"allocation_id": notice.id, "terminals": told}})
            except HostError as error:
                log.warning("a notice reached nobody: %s", error)
            except Exception:
                log.exception("a notice failed")
