"""The nft table of an agent, and the machines it names. The table itself is the only record of them."""

import threading
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from gpuaas.kit.errors import HostError
from gpuaas.node.host.network import nft, rules
from gpuaas.node.host.network.members import Member, elements, grouped, read, refuse_taken

_MISSING = "No such file or directory"


class Table:
    """Safe to use from many threads: what is read is still true when it is acted upon."""

    def __init__(self, name: str, interfaces: str, pool: IPv4Network, denied: Iterable[IPv4Network]) -> None:
        self._name = name
        self._interfaces = interfaces
        self._pool = pool
        self._denied = list(denied)
        self._hidden: set[tuple[IPv4Address, int]] = set()
        self._lock = threading.Lock()

    def install(self, resolvers: Iterable[str]) -> None:
        """As it should be, whatever was done to it. The machines it names stay, and their connections with them."""
        with self._lock:
            members = self.members()
            text = rules.table(
                self._name,
                self._interfaces,
                self._pool,
                denied=self._denied,
                hidden=self._hidden,
                resolvers=resolvers,
                members=members,
            )
            try:
                nft.change(text)
            except nft.Refused as error:
                raise HostError(
                    "install", f"the nft table {self._name}", _cause(str(error)), transient=False
                ) from error

    def hide(self, servers: Collection[tuple[IPv4Address, int]]) -> None:
        """These, and no others any more. Before the table is there, or where an older agent made it: with `install`."""
        with self._lock:
            self._hidden = set(servers)
            elements = rules.ends(self._hidden)
            commands = [f"flush set inet {self._name} hidden"]
            commands += [f"add element inet {self._name} hidden {{ {elements} }}"] if elements else []
            try:
                nft.change("\n".join(commands))
            except nft.Refused as error:
                if _MISSING not in str(error):
                    raise HostError("hide", elements, f"nft: {error}") from error

    def delete(self) -> None:
        with self._lock:
            # Added first: then it is there to be deleted.
            self._change("delete", "the table", [f"add table inet {self._name}", f"delete table inet {self._name}"])

    def members(self) -> list[Member]:
        try:
            answer = nft.listed(f"list set inet {self._name} members")
        except nft.Refused as error:
            if _MISSING in str(error):
                return []
            raise HostError("list", f"the nft table {self._name}", str(error)) from error
        found: dict[str, Any] = next((each["set"] for each in answer if "set" in each), {})
        return [member for element in found.get("elem", []) if (member := read(element)) is not None]

    def find(self, id: str) -> Member | None:
        return next((member for member in self.members() if member.id == id), None)

    def add(self, member: Member, *, open_network: bool) -> bool:
        """Answers whether it is in the table now: not while the same id has another address there."""
        with self._lock:
            present = self.members()
            refuse_taken(member, present)
            before = next((each for each in present if each.id == member.id), None)
            if before is not None and before.key != member.key:
                return False
            self._become(member.id, before, grouped(member, present) if open_network else member)
        return True

    def remove(self, id: str) -> None:
        with self._lock:
            self._become(id, self.find(id), None)

    def _become(self, id: str, before: Member | None, after: Member | None) -> None:
        if before == after:
            return
        old, new = elements(before) if before else {}, elements(after) if after else {}
        commands = [
            # Added first where somebody may have taken it away: what is not there cannot be deleted.
            *(f"add element inet {self._name} {kind} {{ {text} }}" for kind, text in old.items()),
            *(f"delete element inet {self._name} {kind} {{ {text} }}" for kind, text in old.items()),
            *(f"add element inet {self._name} {kind} {{ {text} }}" for kind, text in new.items()),
        ]
        self._change("change what may pass for", id, commands)

    def _change(self, action: str, target: str, commands: list[str]) -> None:
        try:
            nft.change("\n".join(commands))
        except nft.Refused as error:
            raise HostError(action, target, f"nft: {error}") from error


def _cause(said: str) -> str:
    if _MISSING in said or "Operation not supported" in said:
        return f"this kernel lacks a part of nftables (needed: nft_ct, nft_fib_inet, nft_nat, nft_masq): {said}"
    if "not permitted" in said:
        return "not permitted: this needs root and CAP_NET_ADMIN"
    return said
