"""Where a webhook may point: the public internet, and networks that the operator has named."""

import ipaddress
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
# Below it, but another way to write an IPv4 address (6to4), or no place of its own (protocol assignments, Teredo).
DETOURS = tuple(map(ipaddress.ip_network, ("2002::/16", "2001::/23", "192.0.0.0/24")))


class Refused(Exception):
    """This target is not one that we connect to."""


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text.strip()) for text in texts if text.strip())


def permitted(address: Address, allowed: Sequence[Network]) -> bool:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in allowed if network.version == address.version):
        return True
    if not address.is_global or address.is_multicast or any(address in detour for detour in DETOURS):
        return False
    return address.version == 4 or address in GLOBAL_UNICAST
