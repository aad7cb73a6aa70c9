"""Connections that the kernel remembers, so that whoever gets an address next is not sent the answers to the last."""

import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address

from gpuaas.node.host.kernel import asking
from gpuaas.node.host.network.netlink import DUMP, NETFILTER, Netlink, attribute, attributes, nested

_GET, _DELETE = 0x101, 0x102  # of the conntrack subsystem
_TUPLE, _TUPLE_IP, _SOURCE = 1, 1, 1
_ZONE, _ID, _FILTER, _FILTER_ORIGINAL = 18, 12, 25, 1
_BY_SOURCE = 1
_HEADER = struct.pack("=BBH", socket.AF_INET, 0, 0)


def forget(address: IPv4Address) -> None:
    """Those that this address began. The kernel looks through them; only these are sent to us."""
    from_it = nested(_TUPLE, nested(_TUPLE_IP, attribute(_SOURCE, address.packed)))
    wanted = from_it + nested(_FILTER, attribute(_FILTER_ORIGINAL, _BY_SOURCE))
    with asking("forget the connections of", address), Netlink(NETFILTER) as kernel:
        for answer in kernel.ask(_GET, _HEADER + wanted, DUMP):
            found = attributes(answer[len(_HEADER) :])
            entry = nested(_TUPLE, found[_TUPLE])
            entry += b"".join(attribute(kind, found[kind]) for kind in (_ZONE, _ID) if kind in found)
            with suppress(ProcessLookupError, FileNotFoundError):  # it ended by itself
                kernel.ask(_DELETE, _HEADER + entry)
