"""Which targets are connected to, and that a name is asked for once."""

import asyncio
import ipaddress
from itertools import count

import pytest

from control.webhooks.target import Target, target
from gpuaas.control.webhooks.address import Address, Refused, networks, permitted
from gpuaas.control.webhooks.checked import Checked

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450::1"]
NOT_PUBLIC = [
    *("127.0.0.1", "127.8.9.1", "0.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.0.8"),
    *("::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a00:1::"),
    *("2001:0:7f00:1::", "::127.0.0.1", "64:ff9b:1::1"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_permitted(address: str) -> None:
    assert permitted(ipaddress.ip_address(address), ())


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_others_are_not(address: str) -> None:
    assert not permitted(ipaddress.ip_address(address), ())
    assert not permitted(ipaddress.ip_address(address), networks(["203.0.113.0/24", "fd99::/16"]))


def test_a_named_network_is_permitted_and_its_neighbour_is_not() -> None:
    allowed = networks(["10.1.0.0/16", " fd12::/32", ""])
    assert permitted(ipaddress.ip_address("10.1.255.1"), allowed)
    assert permitted(ipaddress.ip_address("::ffff:10.1.0.1"), allowed)
    assert permitted(ipaddress.ip_address("fd12::5"), allowed)
    assert not permitted(ipaddress.ip_address("10.2.0.1"), allowed)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0x7f.1", "2130706433", "127.1", "0177.0.0.1"])
def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with target() as there:
        port = int(there.url.split(":")[2].split("/")[0])
        with pytest.raises(Refused):
            asyncio.run(Checked(()).connect_tcp(host, port, 2.0))
        assert there.requests == []


def test_a_name_that_changes_its_answer_gains_nothing() -> None:
    """The address that was checked is the one that is connected to: the name is asked for once per attempt."""
    asked = count(1)

    async def rebinding(host: str, port: int) -> list[Address]:
        return [ipaddress.ip_address("127.0.0.1" if next(asked) == 1 else "169.254.169.254")]

    async def connect(there: Target) -> str:
        port = int(there.url.split(":")[2].split("/")[0])
        stream = await Checked(networks(["127.0.0.0/8"]), rebinding).connect_tcp("rebinding.example", port, 2.0)
        peer = stream.get_extra_info("server_addr")
        await stream.aclose()
        return str(peer[0])

    with target() as there:
        assert asyncio.run(connect(there)) == "127.0.0.1"
    assert next(asked) == 2, "asked more than once"
