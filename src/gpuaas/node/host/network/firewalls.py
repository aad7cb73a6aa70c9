"""Whether somebody else's packet filter stands between machines and the world. Pure: it reads what nft lists.

What our own table accepts, another table may still drop: every chain at the forward hook is asked. A packet of a
machine is followed through each, as far as the rules can be understood. A rule that is about something we do not know
is taken as if it did not apply: what drops everything else comes later.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Listed = list[dict[str, Any]]
_MOST_JUMPS = 16  # as the kernel
_DROPS = ("drop", "reject")
_VERDICTS = ("accept", "return", "jump", "goto", *_DROPS)
# They decide nothing, wherever they stand in a rule.
_HARMLESS = frozenset({"counter", "log", "comment", "mangle", "notrack"})


@dataclass(frozen=True)
class Packet:
    name: str  # for a person
    comes_by: str
    goes_by: str
    state: str


@dataclass(frozen=True)
class Blocked:
    family: str
    table: str
    chain: str
    packet: str

    @property
    def by_iptables(self) -> bool:
        return self.family == "ip" and self.table == "filter" and self.chain.isupper()


def packets(interfaces: str) -> tuple[Packet, Packet]:
    return (
        Packet("what machines send", f"{interfaces}0", "", "new"),
        Packet("what comes back to them", "", f"{interfaces}0", "established"),
    )


def blocking(listed: Listed, interfaces: str, ours: str = "gpuaas") -> list[Blocked]:
    """The chains that drop packets of machines. Tables whose name begins with `ours` are the platform's own."""
    rules: dict[tuple[str, str, str], Listed] = {}
    for each in listed:
        if rule := each.get("rule"):
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule)
    return [
        Blocked(chain["family"], chain["table"], chain["name"], packet.name)
        for each in listed
        if (chain := each.get("chain")) and chain.get("hook") == "forward" and chain["family"] in ("ip", "inet")
        if not chain["table"].startswith(ours)
        for packet in packets(interfaces)
        if (_verdict(chain["name"], chain, rules, packet) or chain.get("policy", "accept")) in _DROPS
    ]


def _verdict(
    name: str, base: Mapping[str, Any], rules: Mapping[tuple[str, str, str], Listed], packet: Packet, depth: int = 0
) -> str | None:
    """`accept`, `drop`, `reject`, `return`, or None at the end of the chain."""
    for rule in rules.get((base["family"], base["table"], name), ()) if depth < _MOST_JUMPS else ():
        verdict = _of_rule(rule["expr"], packet)
        if verdict is None:
            continue
        kind, target = verdict
        if kind in ("jump", "goto"):
            found = _verdict(target, base, rules, packet, depth + 1)
            if found not in (None, "return"):
                return found
            if kind == "goto":
                return None
        else:
            return kind
    return None


def _of_rule(expressions: Listed, packet: Packet) -> tuple[str, str] | None:
    for expression in expressions:
        (kind, value), *_ = expression.items()
        if kind == "match":
            if not _applies(value, packet):
                return None
        elif kind in _VERDICTS:
            return kind, value["target"] if kind in ("jump", "goto") else ""
        elif kind == "vmap":
            return _of_map(value, packet)
        elif kind not in _HARMLESS:
            return None  # of iptables' own, a limit, a map: nobody knows
    return None


def _of_map(value: Mapping[str, Any], packet: Packet) -> tuple[str, str] | None:
    """As `ct state vmap { established : accept, invalid : drop }`."""
    data = value["data"]
    for right, verdict in data.get("set", ()) if isinstance(data, dict) else ():
        if _applies({"left": value["key"], "right": right, "op": "=="}, packet):
            return _of_rule([verdict], packet)
    return None


def _applies(match: Mapping[str, Any], packet: Packet) -> bool:
    left, right, wanted = match["left"], match["right"], match["op"] != "!="
    if not isinstance(left, dict):
        return False
    if "meta" in left and left["meta"].get("key") in ("iifname", "iif", "oifname", "oif"):
        ours = packet.comes_by if left["meta"]["key"].startswith("i") else packet.goes_by
        named = any(_is_named(ours, each) for each in _values(right))
        return named is wanted if ours else False  # the other end can be any interface
    if left.get("ct", {}).get("key") == "state":
        return (packet.state in set(_values(right))) is wanted
    if left.get("meta", {}).get("key") == "nfproto":
        return ("ipv4" in set(_values(right))) is wanted
    return False


def _is_named(interface: str, name: str) -> bool:
    return interface.startswith(name[:-1]) if name.endswith("*") else interface == name


def _values(right: Any) -> Iterator[str]:
    if isinstance(right, str):
        yield right
    elif isinstance(right, list):
        for each in right:
            yield from _values(each)
    elif isinstance(right, dict):
        yield from _values(right.get("set", right.get("elem", {}).get("val") if "elem" in right else None))
