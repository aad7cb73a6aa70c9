"""The nft table as text: what a machine may reach. Pure.

What a machine can reach: addresses outside, through NAT, and the resolvers of this host, on port 53 only. What it
cannot: this host, at any of its addresses; link-local addresses, and so a cloud's metadata; the servers of this
platform, on their ports; what the operator denies; other machines, unless both are open and of one project. Nobody
reaches a machine who was not asked by it first.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from gpuaas.node.host.network.members import Member, elements

# "This" network, loopback, link-local, multicast and the rest up to broadcast: nothing of these is ever outside.
NEVER = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")
# The mark is only set on what goes from machine to machine, after it was routed: nobody else looks at it.
# Addresses are looked at before any other table's DNAT (a published port would lead around `input`) and again after.
_TABLE = """
add table inet {table}
delete table inet {table}
table inet {table} {{
    set members {{ typeof iifname . ip saddr; {members} }}
    map groups {{ typeof iifname : meta mark; {groups} }}
    set mates {{ typeof oifname . meta mark; {mates} }}
    set denied {{ type ipv4_addr; flags interval; auto-merge; elements = {{ {denied} }}; }}
    set hidden {{ type ipv4_addr . inet_service; {hidden} }}
    set resolvers {{ type ipv4_addr; {resolvers} }}

    chain source {{
        type filter hook prerouting priority raw; policy accept;
        iifname "{ours}*" meta nfproto != ipv4 drop
        iifname "{ours}*" iifname . ip saddr != @members drop
    }}
    chain destination {{
        type filter hook prerouting priority mangle; policy accept;
        iifname != "{ours}*" accept
        ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
        ct state established,related accept comment "answers"
        ip daddr @denied drop
        meta l4proto {{ tcp, udp }} ip daddr . th dport @hidden drop
        fib daddr type {{ local, broadcast, anycast, multicast }} drop
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        iifname != "{ours}*" accept
        ct state established,related accept
        ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
        drop
    }}
    chain output {{
        type filter hook output priority filter; policy accept;
        oifname "{ours}*" ct state != {{ established, related }} drop
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        iifname "{ours}*" oifname "{ours}*" goto between
        iifname "{ours}*" goto out
        oifname "{ours}*" ct state != {{ established, related }} drop
        oifname != "{ours}*" ip daddr {pool} drop comment "of a machine that is gone"
    }}
    chain between {{
        meta mark set 0
        meta mark set iifname map @groups
        oifname . meta mark @mates accept
        drop
    }}
    chain out {{
        ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
        ip daddr {pool} drop
        ip daddr @denied drop
        meta l4proto {{ tcp, udp }} ip daddr . th dport @hidden drop
    }}
    chain translation {{
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr {pool} oifname != "{ours}*" masquerade
    }}
}}
"""


def table(
    name: str,
    interfaces: str,
    pool: IPv4Network,
    *,
    denied: Iterable[IPv4Network],
    hidden: Iterable[tuple[IPv4Address, int]],
    resolvers: Iterable[str],
    members: Iterable[Member],
) -> str:
    """Replaces whatever table of this name there is, in one transaction: at no time is there less than one of them."""
    held = [elements(member) for member in members]
    return _TABLE.format(
        table=name,
        ours=interfaces,
        pool=pool,
        denied=", ".join([*NEVER, *map(str, denied)]),
        hidden=_elements([ends(hidden)]),
        resolvers=_elements(resolvers),
        **{kind: _elements(each[kind] for each in held if kind in each) for kind in ("members", "groups", "mates")},
    )


def ends(servers: Iterable[tuple[IPv4Address, int]]) -> str:
    return ", ".join(f"{address} . {int(port)}" for address, port in sorted(servers))


def _elements(texts: Iterable[str]) -> str:
    text = ", ".join(texts)
    return f"elements = {{ {text} }};" if text else ""
