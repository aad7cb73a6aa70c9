"""What the doctor finds out about this host's own packet filter, and about what agents have left of themselves."""

from pathlib import Path

from gpuaas.kit.errors import HostError
from gpuaas.node.host.findings import Finding, bad, good
from gpuaas.node.host.network import firewalls, forwarding, nft
from gpuaas.node.host.network.firewalls import Blocked

_NAME = "outbound"
_OLD_TABLES = Path("/proc/net/ip_tables_names")


def firewall(interfaces: str) -> Finding:
    """Not required: a site may want machines without a way out."""
    try:
        found = firewalls.blocking(nft.listed("list ruleset"), interfaces)
    except (HostError, nft.Refused, ValueError) as error:
        return bad(_NAME, "unknown", f"the packet filter could not be read: {error}", "run as root", required=False)
    if not found and _has_old_rules():
        problem = "iptables-legacy has rules too, which nft does not see: do they drop what machines send?"
        return bad(_NAME, "unknown", problem, "look: iptables-legacy -S FORWARD", required=False)
    if not found:
        return good(_NAME, "no other table of the packet filter drops what machines send")
    chains = sorted({f"{each.family} {each.table} {each.chain}" for each in found})
    what = " and ".join(dict.fromkeys(each.packet for each in found))
    problem = f"this host's own firewall drops {what}: in {', '.join(chains)}. Machines are reached, and reach nothing"
    remedies = dict.fromkeys(text for each in found for text in _remedy(each, interfaces))
    return bad(_NAME, "blocked", problem, f"{' ; '.join(remedies)} ; and the same where it is kept", required=False)


def marks() -> Finding:
    try:
        found = forwarding.marks()
    except (HostError, nft.Refused, OSError) as error:
        return bad("forwarding", "unknown", f"could not be looked at: {error}", "run as root", required=False)
    state = "on" if forwarding.is_on() else "off"
    value = f"{state}, for {', '.join(found)}" if found else f"{state}; no agent needs it"
    stale = {name: why for name, why in found.items() if why}
    if not stale:
        return good("forwarding", value)
    said = "; ".join(f"{forwarding.NEEDED_BY}/{name}: {why}" for name, why in stale.items())
    remedy = "the next agent that starts here, or `gpuaas down`, takes it away; the last one sets ip_forward back"
    return bad("forwarding", value, f"left by an agent that was killed for good: {said}", remedy, required=False)


def _has_old_rules() -> bool:
    try:
        return "filter" in _OLD_TABLES.read_text().split()
    except OSError:
        return False


def _remedy(blocked: Blocked, interfaces: str) -> list[str]:
    if blocked.by_iptables:
        return [
            f"iptables -I {blocked.chain} -i {interfaces}+ -j ACCEPT",
            f"iptables -I {blocked.chain} -o {interfaces}+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        ]
    where = f"{blocked.family} {blocked.table} {blocked.chain}"
    return [
        f"nft 'insert rule {where} iifname \"{interfaces}*\" accept'",
        f"nft 'insert rule {where} oifname \"{interfaces}*\" ct state established,related accept'",
    ]
