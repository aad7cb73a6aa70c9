"""A machine as the table names it: the element of a set, with a comment that says whose it is. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from gpuaas.kit.errors import HostError

Pair = tuple[str, str]
_COMMENT = re.compile(r"([a-z]{2}-[a-z2-7]{16}) ([a-z]{2}-[a-z2-7]{16})( open)?")


@dataclass(frozen=True)
class Member:
    id: str
    interface: str
    address: IPv4Address
    project_id: str
    open_network: bool  # other open machines of its project may talk to it, and it to them

    @property
    def key(self) -> str:
        return f'"{self.interface}" . {self.address}'

    @property
    def element(self) -> str:
        return f'{self.key} comment "{self.id} {self.project_id}{" open" if self.open_network else ""}"'


def read_member(element: dict[str, Any]) -> Member | None:
    """None for what is not ours: it was not written by an agent."""
    inner = element.get("elem", {})
    said = _COMMENT.fullmatch(inner.get("comment", ""))
    if said is None:
        return None
    interface, address = inner["val"]["concat"]
    return Member(said[1], interface, IPv4Address(address), said[2], said[3] is not None)


def read_pair(element: dict[str, Any]) -> Pair:
    first, second = element.get("elem", {}).get("val", element)["concat"]
    return first, second


def pairs(members: Iterable[Member]) -> set[Pair]:
    """Every two open machines of a project, both ways: exact, unlike a mark that two projects could come to share."""
    mates: dict[str, list[str]] = {}
    for member in members:
        if member.open_network:
            mates.setdefault(member.project_id, []).append(member.interface)
    return {(one, other) for names in mates.values() for one in names for other in names if one != other}


def written(pair: Pair) -> str:
    return f'"{pair[0]}" . "{pair[1]}"'


def refuse_taken(member: Member, present: Iterable[Member]) -> None:
    for other in present:
        if other.id != member.id and other.address == member.address:
            raise HostError("give", f"{member.address} to {member.id}", f"{other.id} has this address")
        if other.id != member.id and other.interface == member.interface:
            raise HostError("give", f"{member.interface} to {member.id}", f"{other.id} has this interface")
