"""The nameservers that machines may ask: those of this host, as far as a machine can reach them.

A resolver on the loopback of this host is not one; behind it are others, which the usual programs write down. One at
another address of this host, or at a link-local one (as in some clouds), is reached by port 53 of exactly that address.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

# The first with an address that a machine can use. The others: behind systemd-resolved, and behind NetworkManager.
FILES = tuple(
    map(Path, ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"))
)


def resolvers(files: Sequence[Path] = FILES) -> list[str]:
    """Empty if there is none: then machines have no names, only addresses."""
    for file in files:
        try:
            lines = [line.split() for line in file.read_text(errors="replace").splitlines()]
        except OSError:
            continue
        found = [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver" and _usable(words[1])]
        if found:
            return list(dict.fromkeys(found))
    return []


def _usable(text: str) -> bool:
    try:
        address = IPv4Address(text)  # machines have no IPv6
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast)
