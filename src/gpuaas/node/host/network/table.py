"""The nft table of an agent, and the machines it names. The table itself is the only record of them."""

import threading
from collections.abc import Callable, Iterable
from ipaddress import IPv4Network
from typing import Any, TypeVar

from gpuaas.kit.errors import HostError
from gpuaas.node.host.network import nft, rules
from gpuaas.node.host.network.members import Member, pairs, read_member, read_pair, refuse_taken, written

_T = TypeVar("_T")
_MISSING = "No such file or directory"


class Table:
    """Safe to use from many threads: what is read is still true when it is acted upon."""

    def __init__(self, name: str, interfaces: str, pool: IPv4Network, denied: Iterable[IPv4Network]) -> None:
        self._name = name
        self._interfaces = interfaces
        self._pool = pool
        self._denied = list(denied)
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
                resolvers=resolvers,
                members=[member.element for member in members],
                peers=[written(pair) for pair in sorted(pairs(members))],
            )
            try:
                nft.change(text)
            except nft.Refused as error:
                raise HostError(
                    "install", f"the nft table {self._name}", _cause(str(error)), transient=False
                ) from error

    def delete(self) -> None:
        with self._lock:
            # Added first: then it is there to be deleted.
            self._change("delete", "the table", [f"add table inet {self._name}", f"delete table inet {self._name}"])

    def members(self) -> list[Member]:
        return [member for member in self._list("members", read_member) if member is not None]

    def find(self, id: str) -> Member | None:
        return next((member for member in self.members() if member.id == id), None)

    def add(self, member: Member) -> bool:
        """Answers whether it is in the table now: not while the same id has another address there."""
        with self._lock:
            present = self.members()
            refuse_taken(member, present)
            if any(each.id == member.id and each.key != member.key for each in present):
                return False
            self._become(member.id, present, [member, *(each for each in present if each.id != member.id)])
        return True

    def remove(self, id: str) -> None:
        with self._lock:
            present = self.members()
            self._become(id, present, [each for each in present if each.id != id])

    def _become(self, id: str, present: list[Member], wanted: list[Member]) -> None:
        new_pairs = pairs(wanted)
        # Read, not computed: one that somebody took away could not be deleted, and would be in the way for ever.
        old_pairs = set(self._list("peers", read_pair)) if new_pairs or pairs(present) else set()
        asked = [
            ("delete", "members", [each.key for each in present if each not in wanted]),
            ("add", "members", [each.element for each in wanted if each not in present]),
            ("delete", "peers", [written(pair) for pair in old_pairs - new_pairs]),
            ("add", "peers", [written(pair) for pair in new_pairs - old_pairs]),
        ]
        commands = [
            f"{verb} element inet {self._name} {kind} {{ {', '.join(elements)} }}"
            for verb, kind, elements in asked
            if elements
        ]
        if commands:
            self._change("change what may pass for", id, commands)

    def _list(self, kind: str, read: Callable[[dict[str, Any]], _T]) -> list[_T]:
        try:
            answer = nft.listed(f"list set inet {self._name} {kind}")
        except nft.Refused as error:
            if _MISSING in str(error):
                return []
            raise HostError("list", f"the nft table {self._name}", str(error)) from error
        found: dict[str, Any] = next((each["set"] for each in answer if "set" in each), {})
        return [read(element) for element in found.get("elem", [])]

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
