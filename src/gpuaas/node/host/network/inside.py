"""What the helper does for a machine's network: makes its namespaces, and sets up its end of the link.

Runs in a child of the helper (`mounts/enter`), never in the agent. It reads no file that a tenant can write.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path

from msgspec import Struct

from gpuaas.node.host import kernel
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.mounts import idmaps
from gpuaas.node.host.network import links
from gpuaas.node.host.network.netlink import Netlink

_LOOPBACK = "lo"
_NO_IPV6 = [Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6") for which in ("all", "default")]


class Fresh(Struct, frozen=True, tag=True):
    """A user namespace with the ids from `uid_base`, and a network namespace that belongs to it."""

    uid_base: int


class Address(Struct, frozen=True, tag=True):
    """The only address of a machine, and the only way out of it."""

    device: str
    address: str
    gateway: str
    gateway_mac: str


def serve(request: Fresh | Address, namespace: int | None) -> list[int]:
    """Answers with handles on what it made."""
    if isinstance(request, Fresh):
        return list(idmaps.network_namespace(request.uid_base))
    assert namespace is not None
    with asking("set up the network of", request.address), _entered(namespace):
        _set_up(request)
    return []


def _set_up(request: Address) -> None:
    for file in _NO_IPV6:
        with suppress(FileNotFoundError):  # this kernel has none
            file.write_text("1")
    device, gateway = links.index(request.device), IPv4Address(request.gateway)
    with Netlink() as kernel_side:
        links.up(kernel_side, links.index(_LOOPBACK))
        links.up(kernel_side, device)
        links.address(kernel_side, device, IPv4Address(request.address))
        links.neighbour(kernel_side, device, gateway, bytes.fromhex(request.gateway_mac))
        links.default_route(kernel_side, device, gateway)


@contextmanager
def _entered(namespace: int) -> Iterator[None]:
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    kernel.setns(namespace, kernel.CLONE_NEWNET)
    try:
        yield
    finally:
        kernel.setns(home, kernel.CLONE_NEWNET)  # so that this process does not keep the namespace
        os.close(home)
