"""The parts of a machine's network that only decide, or only read."""

import errno
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.mounts.helper import Helper
from gpuaas.node.host.network import netlink, rules
from gpuaas.node.host.network.members import Member, elements, grouped, read, refuse_taken
from gpuaas.node.host.network.netlink import Netlink
from gpuaas.node.host.network.network import Network
from gpuaas.node.host.network.resolvers import resolvers
from gpuaas.node.host.paths import Paths
from node.samples import ID, OTHER_ID, PROJECT, ids

OTHER_PROJECT = ids.new("pr")


def member(id: str = ID, seat: int = 0, project_id: str = PROJECT, group: int = 0) -> Member:
    return Member(id, f"gv{id[:13]}", IPv4Address("198.18.0.0") + seat, project_id, group)


def network(tmp_path: Path, **more: object) -> Network:
    return Network(Paths(tmp_path, tmp_path), Helper(tmp_path, []), **more)  # type: ignore[arg-type]


# members


def test_what_is_written_is_read() -> None:
    said = elements(member(group=7))
    key, _, comment = said["members"].partition(" comment ")
    interface, _, address = key.partition(" . ")
    listed = {"elem": {"val": {"concat": [interface.strip('"'), address]}, "comment": comment.strip('"')}}
    assert read(listed) == member(group=7)
    assert (said["groups"].split(" ")[-1], said["mates"].split(" ")[-1]) == ("7", "7")
    assert set(elements(member())) == {"members"}


@pytest.mark.parametrize("comment", ["", "hello", f"{ID} {PROJECT}", f"{ID} {PROJECT} 1; drop", f"{ID} {PROJECT} -1"])
def test_what_others_wrote_is_not_a_member(comment: str) -> None:
    assert read({"elem": {"val": {"concat": ["gv0", "198.18.0.0"]}, "comment": comment}}) is None
    assert read({"concat": ["gv0", "198.18.0.0"]}) is None


def test_a_project_has_one_number_and_no_other_has_it() -> None:
    first = grouped(member(), [])
    assert first.group == 1
    other = grouped(member(OTHER_ID, 1, OTHER_PROJECT), [first])
    assert other.group == 2
    third = ids.new("al")
    assert grouped(member(third, 2), [other, first]).group == 1
    assert grouped(member(third, 2, ids.new("pr")), [other]).group == 1  # free again
    assert grouped(first, [first, other]) == first


def test_an_address_is_given_once() -> None:
    refuse_taken(member(), [member(), member(OTHER_ID, 1)])
    with pytest.raises(HostError, match=f"{OTHER_ID} has this address"):
        refuse_taken(member(), [member(OTHER_ID, 0)])
    twin = ID[:-1] + ("a" if ID[-1] != "a" else "b")
    with pytest.raises(HostError, match=f"{twin} has this interface"):
        refuse_taken(member(), [member(twin, 1)])


# rules


def test_an_empty_table_has_no_empty_sets_of_elements() -> None:
    pool = IPv4Network("198.18.0.0/15")
    text = rules.table("gpuaas", "gv", pool, denied=[], hidden=[], resolvers=[], members=[])
    assert "{  }" not in text
    assert text.count("elements") == 1
    more = {"hidden": [(IPv4Address("10.0.0.2"), 443)], "resolvers": ["10.0.0.1"], "members": [member(group=1)]}
    text = rules.table("gpuaas", "gv", pool, denied=[pool], **more)
    assert text.count("elements") == 6


# addresses


def test_a_seat_has_an_address_while_there_are_some(tmp_path: Path) -> None:
    small = network(tmp_path, pool="10.1.0.0/30")
    assert [small.address(seat) for seat in range(4)] == ["10.1.0.0", "10.1.0.1", "10.1.0.2", "10.1.0.3"]
    for seat in (4, -1):
        with pytest.raises(HostError, match=r"10\.1\.0\.0/30 has 4 addresses") as refused:
            small.address(seat)
        assert not refused.value.transient
    assert network(tmp_path).address(100_000) == "198.19.134.160"


def test_names_that_would_become_commands_are_refused(tmp_path: Path) -> None:
    for more in ({"name": "a; drop"}, {"interfaces": 'g"'}, {"interfaces": "toolongprefix"}, {"interfaces": ""}):
        with pytest.raises(HostError, match="not names"):
            network(tmp_path, **more)
    for more in ({"pool": "198.18.0.1/15"}, {"pool": "fd00::/64"}, {"denied": ["server.example.org"]}):
        with pytest.raises(HostError, match="networks that were configured"):
            network(tmp_path, **more)
    with pytest.raises(HostError, match="not the id of a project"):
        network(tmp_path).ensure(ID, seat=0, uid_base=65536, project_id="pr\n", open_network=True)
    with pytest.raises(HostError, match="not the id of an allocation"):
        network(tmp_path).ensure("../x", seat=0, uid_base=65536, project_id=PROJECT, open_network=True)


# resolvers


def test_resolvers_are_those_that_a_machine_can_reach(tmp_path: Path) -> None:
    first, behind = tmp_path / "resolv.conf", tmp_path / "behind.conf"
    first.write_text("# comment\nsearch example.org\nnameserver 127.0.0.53\nnameserver ::1\noptions edns0\n")
    assert resolvers((first, behind)) == []
    behind.write_text("nameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver 10.0.0.3\nnameserver 10.0.0.2\n")
    assert resolvers((first, behind)) == ["10.0.0.2", "10.0.0.3"]
    first.write_text("nameserver 127.0.0.1\nnameserver\nnameserver 169.254.169.254\nnameserver 0.0.0.0\n")
    assert resolvers((first, behind)) == ["169.254.169.254"]


# netlink


def test_attributes_are_packed_as_the_kernel_wants_them() -> None:
    assert netlink.attribute(3, "lo").hex() == "07000300" + "6c6f0000" + ""
    assert netlink.attribute(4, 1500).hex() == "08000400dc050000"
    data = netlink.attribute(3, "lo") + netlink.nested(18, netlink.attribute(1, "veth"))
    found = netlink.attributes(data)
    assert found[3] == b"lo\0"
    assert netlink.attributes(found[18]) == {1: b"veth\0"}
    assert netlink.attributes(b"\0\0\0\0" * 3) == {0: b""}  # nonsense ends too


def test_the_kernel_says_no_in_words() -> None:
    with Netlink() as kernel, pytest.raises(OSError, match=r".") as refused:
        kernel.ask(19, bytes(16) + netlink.attribute(3, "no-such-link"))
    assert refused.value.errno in (errno.ENODEV, errno.EPERM)
