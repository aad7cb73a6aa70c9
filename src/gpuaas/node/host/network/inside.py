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


class Machine(Struct, frozen=True):
    """Its link from end to end, and its only address. Macs are in hexadecimal digits."""

    uid_base: int
    interface: str  # on the host
    interface_mac: str
    device: str  # in the machine
    device_mac: str
    address: str
    gateway: str  # names the host's end, for the machine
    mtu: int


def serve(machine: Machine, namespace: int | None) -> list[int]:
    """In the network namespace of an earlier time, or else in a fresh one and a user namespace: handles on these."""
    handles = [] if namespace is not None else idmaps.network_namespace(machine.uid_base)
    network = handles[-1] if namespace is None else namespace
    links.create(
        machine.interface,
        bytes.fromhex(machine.interface_mac),
        machine.device,
        bytes.fromhex(machine.device_mac),
        network,
        machine.mtu,
    )
    with asking("set up the network of", machine.address), _entered(network):
        _set_up(machine)
    return handles


def _set_up(machine: Machine) -> None:
    for file in _NO_IPV6:
        with suppress(FileNotFoundError):  # this kernel has none
            file.write_text("1")
    device, gateway = links.index(machine.device), IPv4Address(machine.gateway)
    with Netlink() as kernel_side:
        links.up(kernel_side, links.index(_LOOPBACK))
        links.up(kernel_side, device)
        links.address(kernel_side, device, IPv4Address(machine.address))
        links.neighbour(kernel_side, device, gateway, bytes.fromhex(machine.interface_mac))
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
