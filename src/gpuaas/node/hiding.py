"""Keeps machines from the servers that this agent dials: on their ports, at whatever addresses their names have now.

What cannot be looked up, as when a name server does not answer, stays as it was last known.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable
from ipaddress import ip_address

from gpuaas.kit.errors import HostError
from gpuaas.node.host.interface import Host
from gpuaas.node.servers import Servers

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
PATIENCE_SECONDS = 3.0
End = tuple[str, int]  # an IPv4 address, which is all that machines can reach, and a port
Lookup = Callable[[str, int], Iterable[End]]


def lookup(name: str, port: int) -> list[End]:
    """Raises OSError."""
    return [(str(found[4][0]), port) for found in socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)]


class Hiding:
    def __init__(self, host: Host, servers: Servers, lookup: Lookup = lookup) -> None:
        self._host = host
        self._servers = servers
        self._lookup = lookup
        self._known: dict[End, set[End]] = {}  # by name and port
        self._told: set[End] | None = None

    def look(self) -> None:
        """Tells the host, if anything has changed."""
        for name, port in self._servers.ends:
            try:
                found = {end for end in self._lookup(name, port) if not ip_address(end[0]).is_loopback}
            except (OSError, ValueError) as error:
                log.debug("cannot look up %s: %s", name, error)
                continue
            self._known[name, port] = found
        wanted = {end for found in self._known.values() for end in found}
        if wanted == self._told:
            return
        try:
            self._host.hide(wanted)
        except HostError as error:
            log.warning("machines may reach a server of this platform: %s", error)
        else:
            self._told = wanted


async def hide_first(hiding: Hiding, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Before anything is made. Machines do not wait long for a name server that is away: it is done when that ends."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.to_thread(hiding.look), patience_seconds)


async def keep_hidden(hiding: Hiding, every_seconds: float = EVERY_SECONDS) -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(every_seconds)
        await asyncio.to_thread(hiding.look)
