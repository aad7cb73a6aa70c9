"""Links, addresses, routes and neighbours, in the network namespace of the calling process.

Neighbours are written down on both sides, so nobody asks who has an address, and a false answer changes nothing.
"""

import errno
import socket
import struct
import sys
from ipaddress import IPv4Address
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.kernel import asking
from gpuaas.node.host.network import netlink
from gpuaas.node.host.network.netlink import CREATE, EXCLUSIVE, REPLACE, Netlink, attribute, nested

_NEWLINK, _DELLINK, _SETLINK, _NEWADDR, _NEWROUTE, _GETROUTE, _NEWNEIGH = 16, 17, 19, 20, 24, 26, 28
_UP, _NOARP = 0x1, 0x80
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_NET_NS_FD = 1, 3, 4, 18, 20, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY = 1, 4, 5
_NDA_DST, _NDA_LLADDR = 1, 2
_MAIN, _BOOT, _UNICAST, _ONLINK = 254, 3, 1, 4
_EVERYWHERE, _ON_LINK = 0, 253  # scopes
_PERMANENT = 0x80
_DEVICES = Path("/sys/class/net")
_CREATE_MEANINGS = {
    errno.EOPNOTSUPP: "this kernel cannot make veth links (CONFIG_VETH; modprobe veth)",
    errno.EPERM: "not permitted: this needs root and CAP_NET_ADMIN",
    errno.EEXIST: "there is a link with this name already, here or in the machine",
}


def create(name: str, mac: bytes, peer: str, peer_mac: bytes, namespace: int, mtu: int) -> None:
    """A veth pair, its peer in the network namespace behind a handle. Both are down."""
    there = _link() + _described(peer, peer_mac, mtu)
    there += attribute(_IFLA_NET_NS_FD, namespace)
    info = nested(_IFLA_LINKINFO, attribute(_INFO_KIND, "veth"), nested(_INFO_DATA, attribute(_VETH_PEER, there)))
    with asking("make the link", name, _CREATE_MEANINGS), Netlink() as kernel:
        kernel.ask(_NEWLINK, _link() + _described(name, mac, mtu) + info, CREATE | EXCLUSIVE)


def delete(name: str) -> bool:
    """With its peer, wherever that is. Answers whether there was one."""
    with asking("delete the link", name), Netlink() as kernel:
        try:
            kernel.ask(_DELLINK, _link() + attribute(_IFLA_IFNAME, name))
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return False
    return True


def up(kernel: Netlink, index: int, *, arp: bool = True) -> None:
    """Without `arp`, it neither asks nor answers nor learns who has an address."""
    kernel.ask(_SETLINK, _link(index, _UP | (0 if arp else _NOARP), _UP | _NOARP))


def set_alias(kernel: Netlink, index: int, alias: str) -> None:
    kernel.ask(_SETLINK, _link(index) + attribute(_IFLA_IFALIAS, alias.encode()))


def index(name: str) -> int:
    """OSError when there is none."""
    return socket.if_nametoindex(name)


def address(kernel: Netlink, index: int, ip: IPv4Address) -> None:
    payload = struct.pack("=BBBBI", socket.AF_INET, 32, 0, _EVERYWHERE, index)
    kernel.ask(
        _NEWADDR, payload + attribute(_IFA_LOCAL, ip.packed) + attribute(_IFA_ADDRESS, ip.packed), CREATE | REPLACE
    )


def neighbour(kernel: Netlink, index: int, ip: IPv4Address, mac: bytes) -> None:
    payload = struct.pack("=BxxxiHBB", socket.AF_INET, index, _PERMANENT, 0, 0)
    kernel.ask(_NEWNEIGH, payload + attribute(_NDA_DST, ip.packed) + attribute(_NDA_LLADDR, mac), CREATE | REPLACE)


def default_route(kernel: Netlink, index: int, gateway: IPv4Address) -> None:
    """Through a gateway that no address of ours is near to: it is on the link because we say so."""
    route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _MAIN, _BOOT, _EVERYWHERE, _UNICAST, _ONLINK)
    route += attribute(_RTA_GATEWAY, gateway.packed) + attribute(_RTA_OIF, index)
    kernel.ask(_NEWROUTE, route, CREATE | REPLACE)


def host_route(kernel: Netlink, index: int, ip: IPv4Address) -> None:
    """To one address on this link. Refused if it leads elsewhere already: it would be taken from somebody."""
    route = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, _MAIN, _BOOT, _ON_LINK, _UNICAST, 0)
    route += attribute(_RTA_DST, ip.packed) + attribute(_RTA_OIF, index)
    try:
        kernel.ask(_NEWROUTE, route, CREATE | EXCLUSIVE)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        if leads_to(kernel, ip) != index:
            cause = "this host has a route to it already; does another agent use the same pool?"
            raise HostError("route", str(ip), cause) from error


def leads_to(kernel: Netlink, ip: IPv4Address) -> int:
    """The index of the link by which packets to this address leave; 0 for none."""
    asked = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0) + attribute(_RTA_DST, ip.packed)
    try:
        answers = kernel.ask(_GETROUTE, asked)
    except OSError as error:
        if error.errno not in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            raise
        return 0
    return int.from_bytes(netlink.attributes(answers[0][12:])[_RTA_OIF], sys.byteorder)


def named(prefix: str) -> dict[str, str]:
    """The links of this host whose names begin so, and their aliases: '' for one that is not finished."""
    names = [path.name for path in _DEVICES.iterdir() if path.name.startswith(prefix)]
    return {name: said for name in names if (said := alias(name)) is not None}


def alias(name: str) -> str | None:
    return _read(name, "ifalias")


def counters(name: str) -> tuple[int, int] | None:
    """Bytes that went into the host's end and that came out of it."""
    sent, received = _read(name, "statistics/tx_bytes"), _read(name, "statistics/rx_bytes")
    return (int(sent), int(received)) if sent and received else None


def mtu_of_default_route() -> int:
    """What leaves this host may not be larger. 1500 where it has no way out."""
    with asking("read", "the routes of this host"):
        rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    device = next((row[0] for row in rows if row[1] == row[7] == "00000000"), "")
    return int(_read(device, "mtu") or 1500) if device else 1500


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _described(name: str, mac: bytes, mtu: int) -> bytes:
    return attribute(_IFLA_IFNAME, name) + attribute(_IFLA_ADDRESS, mac) + attribute(_IFLA_MTU, mtu)


def _read(name: str, what: str) -> str | None:
    try:
        return (_DEVICES / name / what).read_text().strip()
    except OSError:  # gone, also in the middle of a read (EINVAL)
        return None
