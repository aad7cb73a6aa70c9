"""The network of each allocation: namespaces that outlive its container and the agent, one link, and what may pass.

Made in this order, each part safe to make again: its name in the table, which claims the address and without which
nothing passes; the namespaces and the link, with the machine's end set up; their pins; the host's end; and last the
alias of the link, which says that all of this is done.
"""

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, ip_network
from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import is_id
from gpuaas.node.host.kernel import CLONE_NEWNET, CLONE_NEWUSER, asking
from gpuaas.node.host.mounts import pins
from gpuaas.node.host.mounts.enter import Request
from gpuaas.node.host.mounts.helper import Helper
from gpuaas.node.host.network import connections, forwarding, links
from gpuaas.node.host.network.inside import Machine
from gpuaas.node.host.network.members import Member
from gpuaas.node.host.network.netlink import Netlink
from gpuaas.node.host.network.resolvers import FILES, resolvers
from gpuaas.node.host.network.table import Table
from gpuaas.node.host.paths import Paths

DEVICE = "eth0"  # in the machine
GATEWAY = IPv4Address("169.254.1.1")  # nobody has it: it only names the other end of the link
_NAME_LENGTH = 15
_PREFIX, _TABLE = re.compile("[a-z][a-z0-9]{0,5}"), re.compile("[a-z][a-z0-9_-]{0,60}")  # become parts of commands
_HOST_MAC = bytes.fromhex("026770750001")
_KINDS = {"user": CLONE_NEWUSER, "net": CLONE_NEWNET}
_SETTINGS = Path("/proc/sys/net")


class Network:
    """Safe to use from many threads, one at a time for an id.

    Agents on one host need names, interface prefixes (none the beginning of another) and pools of their own.
    """

    def __init__(
        self,
        paths: Paths,
        helper: Helper,
        *,
        name: str = "gpuaas",
        interfaces: str = "gv",
        pool: str = "198.18.0.0/15",
        denied: Sequence[str] = (),
        resolver_files: Sequence[Path] = FILES,
    ) -> None:
        """`denied`: networks and addresses that no machine may reach, such as the server's."""
        if _PREFIX.fullmatch(interfaces) is None or _TABLE.fullmatch(name) is None:
            raise HostError("name", f"{name} {interfaces}", "not names for a table and for links", transient=False)
        self._paths = paths
        self._helper = helper
        self._name = name
        self._interfaces = interfaces
        self._resolver_files = resolver_files
        try:
            self._pool = IPv4Network(pool)
            self._table = Table(name, interfaces, self._pool, _only_ipv4(denied))
        except ValueError as error:
            raise HostError("read", "the networks that were configured", str(error), transient=False) from error

    def prepare(self) -> None:
        """Once at every start of the agent, before anything else."""
        pins.prepare(self._paths.networks)
        self._table.install(self.resolvers())
        forwarding.switch_on(self._name, self._paths.run)
        # Without an alias: whoever made it died in between, and nothing says any more whose it is.
        for name, alias in links.named(self._interfaces).items():
            if not alias:
                links.delete(name)

    def hide(self, servers: Collection[tuple[str, int]]) -> None:
        """No machine reaches these addresses on these ports, from now on."""
        try:
            self._table.hide({(IPv4Address(address), port) for address, port in servers})
        except ValueError as error:
            raise HostError("hide", "a server", str(error), transient=False) from error

    def ensure(self, id: str, *, seat: int, uid_base: int, project_id: str, open_network: bool) -> None:
        member = self._member(id, seat, project_id)
        while not self._table.add(member, open_network=open_network):
            self.remove(id)  # it had another seat
        if not self._pinned(id):
            self._remove_parts(id)  # half of it, or what a machine without pins has left
            self._create(member, uid_base)
        elif links.alias(member.interface) != _finished(member):
            self._create_link(member)
        self._connect(member)

    def remove(self, id: str) -> None:
        member = self._table.find(id)
        silent = links.counters(self._interface(id)) == (0, 0)
        self._delete_link(id)
        # While the table names it nobody else can have the address. Its connections are looked for among all: 10 ms.
        if member is not None and not silent:
            connections.forget(member.address)
        self._table.remove(id)
        self._remove_parts(id)

    def ids(self) -> list[str]:
        """Everything of which there is any part, found by looking at the host."""
        pinned = {name.partition(".")[0] for name in pins.names(self._paths.networks)}
        linked = {alias.partition(" ")[0] for alias in links.named(self._interfaces).values()}
        return sorted(id for id in pinned | linked | {each.id for each in self._table.members()} if is_id(id, id[:2]))

    def complete(self, id: str) -> bool:
        member = self._table.find(id)
        if member is None or not self._pinned(id) or links.alias(member.interface) != _finished(member):
            return False
        with asking("find the way to", id), Netlink() as kernel:
            return links.leads_to(kernel, member.address) == links.index(member.interface)

    def open(self, id: str) -> tuple[int, int]:
        """Handles on its user and its network namespace. The caller closes them."""
        user = self._reopen(id, "user")
        try:
            return user, self._reopen(id, "net")
        except HostError:
            os.close(user)
            raise

    def traffic(self, id: str) -> tuple[int, int]:
        """Bytes that the machine received and sent, since its link was made."""
        counted = links.counters(self._interface(id))
        if counted is None:
            raise HostError("count the traffic of", id, "it has no link")
        return counted

    def address(self, seat: int) -> str:
        if not 0 <= seat < self._pool.num_addresses:
            cause = f"the pool {self._pool} has {self._pool.num_addresses} addresses; give this agent a larger one"
            raise HostError("find an address for", f"seat {seat}", cause, transient=False)
        return str(self._pool[seat])

    def resolvers(self) -> list[str]:
        """For a machine's resolv.conf."""
        return resolvers(self._resolver_files)

    def clear(self) -> None:
        """Leaves the host as it was before `prepare`, unless a machine is left."""
        if self.ids():
            return
        self._table.delete()
        forwarding.set_back(self._name)
        pins.clear(self._paths.networks)

    def _member(self, id: str, seat: int, project_id: str) -> Member:
        if not is_id(project_id, project_id[:2]):  # becomes part of a command to nft
            raise HostError("read", repr(project_id), "not the id of a project", transient=False)
        return Member(id, self._interface(id), IPv4Address(self.address(seat)), project_id)

    def _interface(self, id: str) -> str:
        self._paths.network_pin(id, "net")  # looks at the id
        return (self._interfaces + id)[:_NAME_LENGTH]

    def _pinned(self, id: str) -> bool:
        return all(pins.pinned(self._paths.network_pin(id, name), kind) for name, kind in _KINDS.items())

    def _reopen(self, id: str, name: str) -> int:
        handle = pins.reopen(self._paths.network_pin(id, name), _KINDS[name])
        if handle is None:
            raise HostError("open the namespaces of", id, "it has no network")
        return handle

    def _create(self, member: Member, uid_base: int) -> None:
        """Namespaces with a link, then their pins: a crash before these leaves nothing."""
        pins.prepare(self._paths.networks)
        _, handles = self._helper.ask(Request(network=_machine(member, uid_base)), None)
        try:
            for name, handle in zip(_KINDS, handles, strict=True):
                pins.hold(self._paths.network_pin(member.id, name), handle)
        finally:
            for handle in handles:
                os.close(handle)

    def _create_link(self, member: Member) -> None:
        self._delete_link(member.id)
        namespace = self._reopen(member.id, "net")
        try:
            self._helper.ask(Request(network=_machine(member, 0)), namespace)
        finally:
            os.close(namespace)

    def _connect(self, member: Member) -> None:
        """The host's end. It has no address: nothing on this host can be spoken to over it."""
        name = member.interface
        with asking("set up the link of", member.id), Netlink() as kernel:
            for setting, value in (("ipv6/conf/{}/disable_ipv6", "1"), ("ipv4/conf/{}/rp_filter", "1")):
                with suppress(FileNotFoundError):  # a kernel without IPv6
                    (_SETTINGS / setting.format(name)).write_text(value)
            index = links.index(name)
            links.up(kernel, index, arp=False)
            links.neighbour(kernel, index, member.address, _mac(member))
            links.host_route(kernel, index, member.address)
            links.set_alias(kernel, index, _finished(member))

    def _delete_link(self, id: str) -> None:
        """Names are short: one that says it is another's is left alone."""
        name = self._interface(id)
        said = links.alias(name)
        if said is not None and said.partition(" ")[0] in ("", id):
            links.delete(name)

    def _remove_parts(self, id: str) -> None:
        self._delete_link(id)
        for name in _KINDS:
            pins.drop(self._paths.network_pin(id, name))


def _finished(member: Member) -> str:
    """The alias of a link that is ready."""
    return f"{member.id} {member.address}"


def _mac(member: Member) -> bytes:
    return _HOST_MAC[:2] + member.address.packed


def _machine(member: Member, uid_base: int) -> Machine:
    return Machine(
        uid_base=uid_base,
        interface=member.interface,
        interface_mac=_HOST_MAC.hex(),
        device=DEVICE,
        device_mac=_mac(member).hex(),
        address=str(member.address),
        gateway=str(GATEWAY),
        mtu=links.mtu_of_default_route(),
    )


def _only_ipv4(texts: Sequence[str]) -> list[IPv4Network]:
    """Machines have no IPv6: nothing there is to be denied."""
    return [network for text in texts if isinstance(network := ip_network(text, strict=False), IPv4Network)]
