"""Connections to where webhooks may point, and to nothing else.

A name is looked up once, and the address that was checked is the one that is connected to: a name that answers
differently the second time gains nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

import httpcore

from gpuaas.control.webhooks.address import Address, Network, Refused, permitted

Lookup = Callable[[str, int], Awaitable[list[Address]]]


class Checked(httpcore.AsyncNetworkBackend):
    """Connects to nothing that is not permitted. TLS still verifies the name, which it gets from the URL."""

    def __init__(self, allowed: Sequence[Network], lookup: Lookup | None = None) -> None:
        self._allowed = allowed
        self._lookup = lookup or _lookup
        self._below = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 the interface has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        found = [address for address in await self._lookup(host, port) if permitted(address, self._allowed)]
        if not found:
            raise Refused(f"{host} is not a public address, and in no network that this server may send to")
        return await self._below.connect_tcp(str(found[0]), port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *args: object, **kwargs: object) -> httpcore.AsyncNetworkStream:
        raise Refused("a webhook is reached by TCP only")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _lookup(host: str, port: int) -> list[Address]:
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host} cannot be found: {error}") from error
    # Without the scope of a link-local address, which is refused anyway.
    return [ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in answers]
