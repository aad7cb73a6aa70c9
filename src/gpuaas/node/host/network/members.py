"""A machine as the table names it: the element of a set, with a comment that says whose it is. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

from gpuaas.kit.errors import HostError

_COMMENT = re.compile(r"([a-z]{2}-[a-z2-7]{16}) ([a-z]{2}-[a-z2-7]{16}) ([0-9]{1,9})")


@dataclass(frozen=True)
class Member:
    id: str
    interface: str
    address: IPv4Address
    project_id: str
    group: int = 0  # the number of its project in this table; 0: it talks to no other machine

    @property
    def key(self) -> str:
        return f'"{self.interface}" . {self.address}'


def elements(member: Member) -> dict[str, str]:
    """What the sets of the table hold of it."""
    found = {"members": f'{member.key} comment "{member.id} {member.project_id} {member.group}"'}
    if member.group:
        found["groups"] = f'"{member.interface}" : {member.group}'
        found["mates"] = f'"{member.interface}" . {member.group}'
    return found


def read(element: dict[str, Any]) -> Member | None:
    """From the set `members`. None for what was not written by an agent."""
    inner = element.get("elem", {})
    said = _COMMENT.fullmatch(inner.get("comment", ""))
    if said is None:
        return None
    interface, address = inner["val"]["concat"]
    return Member(said[1], interface, IPv4Address(address), said[2], int(said[3]))


def grouped(member: Member, present: Iterable[Member]) -> Member:
    """With the number of its project: that of its mates, or one that no other project has."""
    groups = {other.group: other.project_id for other in present if other.id != member.id and other.group}
    own = [group for group, project_id in groups.items() if project_id == member.project_id]
    return replace(member, group=own[0] if own else next(n for n in range(1, len(groups) + 2) if n not in groups))


def refuse_taken(member: Member, present: Iterable[Member]) -> None:
    for other in present:
        if other.id != member.id and other.address == member.address:
            raise HostError("give", f"{member.address} to {member.id}", f"{other.id} has this address")
        if other.id != member.id and other.interface == member.interface:
            raise HostError("give", f"{member.interface} to {member.id}", f"{other.id} has this interface")
