import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.kit.ids import Ids
from gpuaas.node.host.mounts import mounts
from gpuaas.node.host.mounts.helper import Helper
from gpuaas.node.host.network import checks, forwarding
from gpuaas.node.host.network.network import Network
from gpuaas.node.host.paths import Paths
from node.samples import ID, OTHER_ID, PROJECT
from root.conftest import needs
from root.outside import (
    DENIED,
    HOST,
    METADATA,
    OUTSIDE,
    PORT,
    inside,
    line,
    on_host,
    output,
    outside,
    python,
    reach,
    reach_from_host,
    reach_from_outside,
    server,
    serving,
    tell,
)

pytestmark = needs("nft", "ip", "nsenter", "unshare")

IDS = Ids(random.Random(5))
OTHER_PROJECT = IDS.new("pr")
TABLE, LINKS, POOL = "gpuaas-net", "gy", "10.213.200.0/24"
Make = Callable[..., Network]


@pytest.fixture
def make(paths: Paths, work: Path) -> Iterator[Make]:
    """A fresh agent's network on the same host."""
    made: list[tuple[Network, Helper]] = []
    (work / "resolv.conf").write_text("nameserver 127.0.0.1\n")

    def fresh(prepare: bool = True, **more: object) -> Network:
        helper = Helper(paths.run, [paths.state])
        arguments: dict[str, object] = {"name": TABLE, "interfaces": LINKS, "pool": POOL, "denied": [f"{DENIED}/24"]}
        arguments |= {"resolver_files": [work / "resolv.conf"]} | more
        network = Network(paths, helper, **arguments)  # type: ignore[arg-type]
        if prepare:
            network.prepare()
        made.append((network, helper))
        return network

    yield fresh
    network = made[0][0]
    forgotten = network.ids()
    for id in forgotten:
        network.remove(id)
    network.clear()
    for _, helper in made:
        helper.close()
    assert not forgotten, f"still there: {forgotten}"


@pytest.fixture
def network(make: Make) -> Network:
    return make()


@pytest.fixture
def world() -> Iterator["Popen[str]"]:
    with outside() as process:
        yield process


def ensure(network: Network, id: str = ID, seat: int = 0, project_id: str = PROJECT, *, open: bool = False) -> str:
    network.ensure(id, seat=seat, uid_base=65536 * (10 + seat), project_id=project_id, open_network=open)
    return network.address(seat)


def elements() -> list[str]:
    """Every element that the table has of a machine."""
    text = subprocess.run(["nft", "list", "table", "inet", TABLE], capture_output=True, text=True, check=True).stdout
    return [word for word in text.replace('"', " ").split() if word.startswith(f"{LINKS}al-")]


def links() -> list[str]:
    return [name for name in os.listdir("/sys/class/net") if name.startswith(f"{LINKS}al-")]


def host_addresses() -> list[str]:
    text = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    found = [info["local"] for link in json.loads(text) for info in link["addr_info"]]
    return [address for address in found if not address.startswith("127.")]


# the machine


def test_a_machine_has_namespaces_an_address_and_a_way_out(network: Network) -> None:
    ensure(network, seat=3)
    assert network.complete(ID)
    assert network.ids() == [ID]
    assert output(network, ID, "cat /proc/self/uid_map", user=True).split() == ["0", "851968", "65536"]
    shown = output(network, ID, "ip -o addr") + output(network, ID, "ip route")
    assert "eth0    inet 10.213.200.3/32" in shown
    assert "default via 169.254.1.1 dev eth0 onlink" in shown
    assert "inet6" not in shown
    network.remove(ID)
    assert (network.ids(), network.complete(ID), elements(), links()) == ([], False, [], [])
    with pytest.raises(HostError, match="it has no network"):
        network.open(ID)
    with pytest.raises(HostError, match="it has no link"):
        network.traffic(ID)


def test_everything_twice_is_as_once(network: Network) -> None:
    network.remove(ID)
    for _ in range(2):
        ensure(network)
        assert network.complete(ID)
    before = os.stat(f"/sys/class/net/{links()[0]}/ifindex").st_ino
    ensure(network)
    assert os.stat(f"/sys/class/net/{links()[0]}/ifindex").st_ino == before
    for _ in range(2):
        network.remove(ID)
    assert network.ids() == []


def test_another_seat_makes_it_anew(network: Network) -> None:
    ensure(network, seat=1)
    ensure(network, seat=2)
    assert network.complete(ID)
    assert output(network, ID, "hostname -I").split() == ["10.213.200.2"]
    network.remove(ID)


def test_an_address_has_one_owner(network: Network, make: Make) -> None:
    ensure(network)
    with pytest.raises(HostError, match=f"{ID} has this address"):
        ensure(network, OTHER_ID, 0)
    assert network.ids() == [ID]
    other = make(name="gpuaas-net2", interfaces="gz")
    with pytest.raises(HostError, match="does another agent use the same pool"):
        ensure(other, OTHER_ID, 0)
    other.remove(OTHER_ID)
    assert network.complete(ID)
    network.remove(ID)
    other.clear()


def test_a_twin_by_name_is_left_alone(network: Network) -> None:
    twin = ID[:-1] + ("a" if ID[-1] != "a" else "b")
    ensure(network)
    with pytest.raises(HostError, match=f"{ID} has this interface"):
        ensure(network, twin, 1)
    network.remove(twin)
    assert network.complete(ID)
    network.remove(ID)


def test_traffic_is_counted_from_the_machines_side(network: Network, world: "Popen[str]") -> None:
    ensure(network)
    code = "import socket, sys; end = socket.create_connection((sys.argv[1], int(sys.argv[2]))); end.recv(99)\n"
    code += "end.sendall(b'x' * 200_000); got = 0\nwhile got < 200_000: got += len(end.recv(99999))"
    python(network, ID, code, OUTSIDE, str(PORT))
    received, sent = network.traffic(ID)
    assert 200_000 < received < 300_000
    assert 200_000 < sent < 300_000
    python(network, ID, f"import socket; socket.socket(2, 2).sendto(bytes(1200), ('{OUTSIDE}', 9))")
    assert network.traffic(ID)[1] >= sent + 1200
    network.remove(ID)


# what can be reached


def test_a_machine_reaches_the_outside_through_nat_and_nobody_reaches_it(network: Network, world: "Popen[str]") -> None:
    address = ensure(network)
    targets = [f"tcp {OUTSIDE} {PORT}", f"udp {OUTSIDE} {PORT}"]
    assert reach(network, ID, *targets) == dict.fromkeys(targets, HOST)
    with serving(inside(network, ID, server())):
        targets = [f"tcp {address} {PORT}", f"udp {address} {PORT}"]
        assert reach_from_outside(world, *targets) == dict.fromkeys(targets)
        assert reach_from_host(*targets) == dict.fromkeys(targets)
    network.remove(ID)


def forbidden(other: str) -> list[str]:
    """Everything that would answer, were it not for the table."""
    hosts = [*host_addresses(), METADATA, DENIED, other]
    return [f"{kind} {host} {PORT}" for host in hosts for kind in ("tcp", "udp")]


def test_a_machine_reaches_nothing_else(network: Network, world: "Popen[str]") -> None:
    ensure(network)
    targets = forbidden(ensure(network, OTHER_ID, 1, OTHER_PROJECT))
    assert len(targets) >= 8
    with serving(on_host()), serving(inside(network, OTHER_ID, server())):
        assert reach(network, ID, *targets) == dict.fromkeys(targets)
        # The same without the table: each of them is really there.
        subprocess.run(["nft", "delete", "table", "inet", TABLE], check=True)
        assert None not in reach(network, ID, *targets, seconds=5).values()
        # Put back, the table names nobody, and nothing passes until it does.
        network.prepare()
        allowed = f"tcp {OUTSIDE} {PORT}"
        assert reach(network, ID, *targets, allowed) == dict.fromkeys([*targets, allowed])
        ensure(network)
        assert reach(network, ID, *targets, allowed) == dict.fromkeys(targets) | {allowed: HOST}
    for id in (ID, OTHER_ID):
        network.remove(id)


def test_no_port_that_is_open_on_this_host_answers(network: Network, world: "Popen[str]") -> None:
    ensure(network)
    ports = set()
    for file in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
        ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    targets = [f"tcp {host} {port}" for host in host_addresses() for port in sorted(ports | {22, 80, 443})]
    assert set(reach(network, ID, *targets).values()) == {None}
    network.remove(ID)


def test_ping_answers_from_outside_and_not_from_this_host(network: Network, world: "Popen[str]") -> None:
    ensure(network)
    code = """
import socket, sys
end = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
end.settimeout(1)
end.sendto(bytes.fromhex("0800f7fd00010001"), (sys.argv[1], 0))
try: print(end.recv(100)[20])
except TimeoutError: print("nothing")
"""
    assert python(network, ID, code, OUTSIDE) == "0\n"
    for address in host_addresses():
        assert python(network, ID, code, address) == "nothing\n"
    network.remove(ID)


def test_a_port_that_the_host_publishes_is_no_way_around(network: Network, world: "Popen[str]") -> None:
    ensure(network)
    # As container engines do it.
    rule = f"fib daddr type local tcp dport 8888 dnat to {OUTSIDE}:{PORT}"
    chain = "add chain ip gpuaas-published c { type nat hook prerouting priority dstnat; }"
    commands = ["add table ip gpuaas-published", chain, f"add rule ip gpuaas-published c {rule}"]
    subprocess.run(["nft", "; ".join(commands)], check=True)
    try:
        targets = [f"tcp {host} 8888" for host in host_addresses()]
        assert reach(network, ID, *targets) == dict.fromkeys(targets)
        subprocess.run(["nft", "delete", "table", "inet", TABLE], check=True)
        assert None not in reach(network, ID, *targets, seconds=5).values()
    finally:
        subprocess.run(["nft", "delete", "table", "ip", "gpuaas-published"], check=True)
    network.remove(ID)


def test_the_resolver_of_this_host_answers_on_its_port_only(make: Make, work: Path, world: "Popen[str]") -> None:
    (work / "resolv.conf").write_text(f"nameserver 127.0.0.53\nnameserver {HOST}\nnameserver {METADATA}\n")
    network = make()
    assert network.resolvers() == [HOST, METADATA]
    ensure(network)
    with serving(on_host(53)), serving(on_host()):
        asked = [f"udp {HOST} 53", f"tcp {HOST} 53"]
        others = [f"udp {HOST} {PORT}", f"tcp {HOST} {PORT}", f"udp {METADATA} {PORT}", f"tcp {METADATA} {PORT}"]
        others += [f"tcp {host} 53" for host in host_addresses() if host != HOST]
        address = network.address(0)
        assert reach(network, ID, *asked, *others) == dict.fromkeys(asked, address) | dict.fromkeys(others)
    network.remove(ID)


# pretending to be another


SEND = """
import socket, struct, sys
source, target, port, text = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
end = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
datagram = struct.pack(">HHHH", 9999, port, 8 + len(text), 0) + text
header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), 1, 0, 64, 17, 0)
header += socket.inet_aton(source) + socket.inet_aton(target)
end.sendto(header + datagram, (target, 0))
"""


def test_a_false_source_address_goes_nowhere(network: Network, world: "Popen[str]") -> None:
    own = ensure(network)
    other = ensure(network, OTHER_ID, 1)
    for source in (other, "8.8.8.8", HOST, "127.0.0.1", network.address(9), OUTSIDE):
        python(network, ID, SEND, source, OUTSIDE, str(PORT), f"from-{source}")
    python(network, ID, SEND, own, OUTSIDE, str(PORT), "honest")
    assert line(world).split()[3] == "honest"  # and nothing before it
    for id in (ID, OTHER_ID):
        network.remove(id)


FRAMES = """
import socket, sys
end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
end.bind(("eth0", 0))
own = end.getsockname()[4]
victim = socket.inet_aton(sys.argv[1])
for operation in (1, 2):
    arp = bytes.fromhex("0001080006040000")[:6] + bytes([0, operation]) + own + victim + bytes(6) + victim
    for to in (bytes([255] * 6), bytes.fromhex("026770750001")):
        end.send(to + own + bytes.fromhex("0806") + arp)
# A router advertisement, as an IPv6 packet to all nodes.
advert = bytes.fromhex("8600000040080708" + "00" * 8)
ip6 = bytes.fromhex("60000000") + len(advert).to_bytes(2, "big") + bytes([58, 255])
ip6 += socket.inet_pton(socket.AF_INET6, "fe80::1") + socket.inet_pton(socket.AF_INET6, "ff02::1")
end.send(bytes.fromhex("333300000001") + own + bytes.fromhex("86dd") + ip6 + advert)
"""


def test_false_neighbours_and_routers_change_nothing(network: Network, world: "Popen[str]") -> None:
    ensure(network)
    ensure(network, OTHER_ID, 1)

    def shown() -> str:
        commands = ("ip -4 neigh show nud permanent", "ip -6 neigh", "ip -4 route", "ip -6 route")
        return "".join(subprocess.run(each.split(), capture_output=True, text=True).stdout for each in commands)

    before = shown()
    for victim in (network.address(1), HOST, OUTSIDE, "169.254.1.1"):
        python(network, ID, FRAMES, victim)
    assert shown() == before
    neighbours = subprocess.run(
        ["ip", "-4", "neigh", "show", "dev", f"{LINKS}{ID[:13]}"], capture_output=True, text=True
    )
    assert neighbours.stdout.split()[0] == network.address(0)
    assert len(neighbours.stdout.splitlines()) == 1
    assert reach(network, OTHER_ID, f"tcp {OUTSIDE} {PORT}") == {f"tcp {OUTSIDE} {PORT}": HOST}
    for id in (ID, OTHER_ID):
        network.remove(id)


# machines of one project


def test_open_machines_of_one_project_talk_and_no_others_do(network: Network) -> None:
    mate, closed, stranger, strangers_mate = (IDS.new("al") for _ in range(4))
    ensure(network, ID, 0, open=True)
    ensure(network, mate, 1, open=True)
    ensure(network, closed, 2)
    ensure(network, stranger, 3, OTHER_PROJECT, open=True)
    ensure(network, strangers_mate, 4, OTHER_PROJECT, open=True)
    servers = [serving(inside(network, id, server())) for id in (ID, mate, closed, stranger, strangers_mate)]
    for each in servers:
        each.__enter__()
    try:
        assert _reached(network, ID) == {1}
        assert _reached(network, mate) == {0}
        assert _reached(network, closed) == set()
        assert _reached(network, stranger) == {4}
        ensure(network, mate, 1)  # it closes
        assert (_reached(network, ID), _reached(network, mate)) == (set(), set())
        ensure(network, closed, 2, open=True)
        assert _reached(network, ID) == {2}
        network.prepare()
        assert (_reached(network, ID), _reached(network, strangers_mate)) == ({2}, {3})
    finally:
        for each in servers:
            each.__exit__(None, None, None)
    for id in (ID, mate, closed, stranger, strangers_mate):
        network.remove(id)
    assert elements() == []


def _reached(network: Network, id: str) -> set[int]:
    found = reach(network, id, *(f"tcp {network.address(seat)} {PORT}" for seat in range(5)), seconds=0.5)
    answers = {seat: found[f"tcp {network.address(seat)} {PORT}"] for seat in range(5)}
    # A machine always answers itself; whoever answers sees the machine's own address.
    own = output(network, id, "hostname -I").strip()
    assert {said for said in answers.values() if said} == {own}
    return {seat for seat, said in answers.items() if said and network.address(seat) != own}


# over time


TALK = """
import socket, sys
end = socket.create_connection((sys.argv[1], int(sys.argv[2])))
end.recv(99)
print("ready", flush=True)
for line in sys.stdin:
    end.sendall(line.encode())
    print(end.recv(99).decode(), end="", flush=True)
"""


def test_a_new_agent_finds_it_as_it_was_and_connections_go_on(
    network: Network, make: Make, world: "Popen[str]"
) -> None:
    ensure(network)
    talk = inside(network, ID, [sys.executable, "-I", "-c", TALK, OUTSIDE, str(PORT)])
    with serving(talk):
        later = make()
        assert (later.ids(), later.complete(ID)) == ([ID], True)
        ensure(later)
        tell(talk, "still there")
        assert line(talk) == "still there"
    later.remove(ID)


def test_after_a_reboot_it_is_made_anew(network: Network, make: Make, paths: Paths, world: "Popen[str]") -> None:
    ensure(network)
    subprocess.run(["nft", "delete", "table", "inet", TABLE], check=True)
    mounts.unmount(paths.networks, lazy=True)
    later = make()
    assert not later.complete(ID)
    ensure(later)
    assert later.complete(ID)
    assert reach(later, ID, f"tcp {OUTSIDE} {PORT}") == {f"tcp {OUTSIDE} {PORT}": HOST}
    later.remove(ID)


def test_without_pins_what_still_runs_is_cut_off(network: Network, paths: Paths, world: "Popen[str]") -> None:
    ensure(network)
    talk = inside(network, ID, [sys.executable, "-I", "-c", TALK, OUTSIDE, str(PORT)])
    with serving(talk):
        mounts.unmount(paths.networks, lazy=True)
        ensure(network)
        assert network.complete(ID)
        tell(talk, "hello")
        assert reach(network, ID, f"tcp {OUTSIDE} {PORT}") == {f"tcp {OUTSIDE} {PORT}": HOST}
    network.remove(ID)


@pytest.mark.parametrize(
    "harm",
    [
        "ip link delete {link}",
        "ip link set {link} down",
        "ip route delete {address}/32 dev {link}",
        "nft flush set inet gpuaas-net members",
        "nft delete table inet gpuaas-net",
        "nft flush chain inet gpuaas-net forward",
        "umount {pin}",
    ],
)
def test_what_was_broken_is_repaired(network: Network, paths: Paths, world: "Popen[str]", harm: str) -> None:
    address = ensure(network)
    broken = harm.format(link=f"{LINKS}{ID[:13]}", address=address, pin=paths.network_pin(ID, "user"))
    subprocess.run(broken.split(), check=True)
    assert network.complete(ID) == ("chain" in harm)
    network.prepare()
    ensure(network)
    assert network.complete(ID)
    targets = [f"tcp {OUTSIDE} {PORT}", f"tcp {DENIED} {PORT}"]
    assert reach(network, ID, *targets) == {targets[0]: HOST, targets[1]: None}
    network.remove(ID)


def test_a_server_of_the_platform_is_hidden_on_its_port(make: Make, world: "Popen[str]") -> None:
    network = make(prepare=False)
    network.hide([(OUTSIDE, PORT)])  # before there is a table
    network.prepare()
    ensure(network)
    there, hidden = f"tcp {OUTSIDE} {PORT}", f"udp {OUTSIDE} {PORT}"
    assert reach(network, ID, there, hidden) == {there: None, hidden: None}
    network.prepare()
    assert reach(network, ID, there) == {there: None}
    network.hide([(OUTSIDE, PORT + 1), ("192.0.2.9", PORT)])  # it has moved, and its old address is somebody else's
    assert reach(network, ID, there, hidden) == {there: HOST, hidden: HOST}
    network.hide([(OUTSIDE, PORT), ("192.0.2.9", PORT)])
    assert reach(network, ID, there) == {there: None}
    assert reach_from_host(there) == {there: HOST}  # for the agent itself it is there
    network.hide([])
    assert reach(network, ID, there) == {there: HOST}
    network.remove(ID)


def test_the_next_machine_with_an_address_gets_no_answers_of_the_last(network: Network, world: "Popen[str]") -> None:
    address = ensure(network)
    assert reach(network, ID, f"udp {OUTSIDE} {PORT}") == {f"udp {OUTSIDE} {PORT}": HOST}
    assert f"src={address} " in Path("/proc/net/nf_conntrack").read_text()
    network.remove(ID)
    assert f"src={address} " not in Path("/proc/net/nf_conntrack").read_text()
    assert ensure(network, OTHER_ID) == address
    network.remove(OTHER_ID)


def test_the_host_is_as_before_when_nobody_is_left(make: Make, paths: Paths) -> None:
    switch = Path("/proc/sys/net/ipv4/ip_forward")
    before = switch.read_text()
    network = make()
    assert switch.read_text() == "1\n"
    ensure(network)
    network.clear()
    assert network.complete(ID)
    network.remove(ID)
    other = make(name="gpuaas-net2", interfaces="gz", pool="10.213.201.0/24")
    make()  # an agent that starts again does not take its own doing for the host's
    network.clear()
    assert switch.read_text() == "1\n"  # the other one needs it
    other.clear()
    assert switch.read_text() == before
    assert not paths.networks.exists()
    network.clear()


def test_who_is_gone_for_good_keeps_nothing_switched(make: Make, paths: Paths, work: Path) -> None:
    """A killed installation's mark says what the switch was before; whoever comes next goes by that, and ends it."""
    switch, marks = Path("/proc/sys/net/ipv4/ip_forward"), forwarding.NEEDED_BY
    before = switch.read_text()
    others = set(os.listdir(marks)) if marks.is_dir() else set()
    network = make()
    without_table, without_directory = marks / "gpuaas-killed", marks / "gpuaas-erased"
    without_table.write_text(before.strip())  # as an older agent has written it
    subprocess.run(["nft", "add", "table", "inet", without_directory.name], check=True)
    try:
        without_directory.write_text(f"{before.strip()}\n{work}/erased\n")
        said = forwarding.marks()
        assert said[TABLE] == ""
        assert "no nft table gpuaas-killed" in said["gpuaas-killed"]
        assert f"{work}/erased is gone" in said["gpuaas-erased"]
        finding = checks.marks()
        assert not finding.ok
        assert not finding.required
        assert f"{marks}/gpuaas-killed: there is no nft table" in finding.problem
        assert "gpuaas down" in finding.remedy
        network.prepare()
        assert set(os.listdir(marks)) == others | {TABLE}
        assert switch.read_text() == "1\n"
        without_table.write_text(before.strip())
        network.clear()
    finally:
        subprocess.run(["nft", "delete", "table", "inet", without_directory.name], check=True)
    assert switch.read_text() == before
    assert (set(os.listdir(marks)) if marks.is_dir() else set()) == others


def test_a_link_that_nobody_finished_goes_at_the_next_start(network: Network) -> None:
    subprocess.run(["ip", "link", "add", f"{LINKS}al-unfinished", "type", "veth", "peer", "gypeer"], check=True)
    network.prepare()
    assert links() == []


# many, and killed


def test_fifty_machines(network: Network) -> None:
    machines = [IDS.new("al") for _ in range(50)]
    projects = [PROJECT, OTHER_PROJECT]
    made, removed = [], []
    for seat, id in enumerate(machines):
        began = time.perf_counter()
        ensure(network, id, seat, projects[seat % 2], open=seat % 3 == 0)
        made.append(time.perf_counter() - began)
    assert network.ids() == sorted(machines)
    assert all(network.complete(id) for id in machines)
    gone, kept = machines[::2], machines[1::2]
    for id in gone:
        began = time.perf_counter()
        network.remove(id)
        removed.append(time.perf_counter() - began)
    assert network.ids() == sorted(kept)
    assert {name[len(LINKS) :] for name in elements()} == {id[:13] for id in kept}
    for id in kept:
        network.remove(id)
    assert (elements(), links()) == ([], [])
    for what, times in (("ensure", made[1:]), ("remove", removed)):
        middle, longest = sorted(times)[len(times) // 2], max(times)
        print(f"{what}: median {middle * 1e3:.1f} ms, longest {longest * 1e3:.1f} ms")


def test_many_threads_at_once(network: Network) -> None:
    machines = [IDS.new("al") for _ in range(12)]
    wrong: list[BaseException] = []

    def come_and_go(seat: int, id: str) -> None:
        try:
            for _ in range(3):
                ensure(network, id, seat, open=True)
                assert network.complete(id)
                network.remove(id)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=come_and_go, args=each) for each in enumerate(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (network.ids(), elements(), links()) == ([], [], [])


# Dies at the n-th thing that Python does in `ensure` or `remove`; says how many there are when it does not.
DOOMED = """
import os, signal, sys
from pathlib import Path
from gpuaas.node.host.mounts.helper import Helper
from gpuaas.node.host.network import checks, forwarding
from gpuaas.node.host.network.network import Network
from gpuaas.node.host.paths import Paths
from node.samples import ID, PROJECT
state, run, table, links, pool = sys.argv[1:]
paths = Paths(Path(state), Path(run))
count = 0

def one(verb, doom):
    global count
    helper = Helper(paths.run, [paths.state])
    network = Network(paths, helper, name=table, interfaces=links, pool=pool)
    def ensure():
        network.ensure(ID, seat=0, uid_base=655360, project_id=PROJECT, open_network=True)
    if verb == "remove":
        ensure()
    count = 0
    def step(frame, event, argument):
        global count
        count += 1
        if count == doom:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(step)
    ensure() if verb == "ensure" else network.remove(ID)
    sys.setprofile(None)
    print(count, flush=True)
    os._exit(0)

for line in sys.stdin:
    verb, doom = line.split()
    pid = os.fork()  # a fresh agent, without the time to start one
    if pid == 0:
        one(verb, int(doom))
    os.waitpid(pid, 0)
    print("dead", flush=True)
"""


@pytest.mark.slow
def test_an_agent_killed_at_any_point_leaves_nothing_that_stays(make: Make, paths: Paths) -> None:
    network = make()
    arguments = [str(paths.state), str(paths.run), TABLE, LINKS, POOL]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", DOOMED, *arguments]
    with Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as doomed:
        killed = 0
        for verb, points in (("ensure", 36), ("remove", 24)):
            tell(doomed, f"{verb} 0")
            steps = int(line(doomed))
            assert line(doomed) == "dead"
            network.remove(ID)
            for point in range(points):
                tell(doomed, f"{verb} {1 + point * steps // points}")
                killed += line(doomed) == "dead"
                assert set(network.ids()) <= {ID}
                if point % 2:
                    _eventually(lambda: ensure(network, open=True))
                    assert network.complete(ID)
                network.remove(ID)
                assert (network.ids(), elements(), links(), os.listdir(paths.networks)) == ([], [], [], [])
        assert killed == 60
        assert doomed.stdin is not None
        doomed.stdin.close()


def _eventually(work: Callable[[], object], seconds: float = 5) -> None:
    """As the agent does: the helper of one that was killed may still be at work for a moment."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            work()
        except HostError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def test_a_helper_killed_at_any_moment_is_replaced(network: Network) -> None:
    rng = random.Random(4)
    failed = 0
    for _ in range(20):
        ensure(network)  # now there is a helper
        network.remove(ID)
        killer = threading.Timer(rng.uniform(0, 0.015), _kill_helpers)
        killer.start()
        try:
            ensure(network)
        except HostError:
            failed += 1
        killer.join()
        ensure(network)
        assert network.complete(ID)
        network.remove(ID)
        assert (network.ids(), elements(), links()) == ([], [], [])
    assert failed


def _kill_helpers() -> None:
    """Of this process: others may run on this machine."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        children = file.read().split()
    for pid in children:
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"mounts.enter" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
