"""What the helper does for a machine's network: makes its namespaces and its link, and sets up the machine's end.

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


class Link(Struct, frozen=True):
    """The only link of a machine, with its only address, and the only way out of it."""

    uid_base: int  # of the user namespace that fresh network namespaces belong to
    name: str  # of the host's end
    mac: str
    mtu: int
    device: str  # the machine's end
    device_mac: str
    address: str
    gateway: str  # whose mac is that of the host's end


def serve(request: Link, namespace: int | None) -> list[int]:
    """In the network namespace, or else in a fresh one in a fresh user namespace: answers with handles on both."""
    fresh = [] if namespace is not None else idmaps.network_namespace(request.uid_base)
    inside = namespace if namespace is not None else fresh[1]
    mac, device_mac = bytes.fromhex(request.mac), bytes.fromhex(request.device_mac)
    links.create(request.name, mac, request.device, device_mac, inside, request.mtu)
    with asking("set up the network of", request.address), _entered(inside):
        _set_up(request)
    return fresh


def _set_up(request: Link) -> None:
    for file in _NO_IPV6:
        with suppress(FileNotFoundError):  # this kernel has none
            file.write_text("1")
    device, gateway = links.index(request.device), IPv4Address(request.gateway)
    with Netlink() as kernel_side:
        links.up(kernel_side, links.index(_LOOPBACK))
        links.up(kernel_side, device)
        links.address(kernel_side, device, IPv4Address(request.address))
        links.neighbour(kernel_side, device, gateway, bytes.fromhex(request.mac))
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
