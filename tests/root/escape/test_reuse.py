"""T27: ids, ports, addresses and names are given to the next only when the last holder is gone."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuaas.kit.errors import HostError
from gpuaas.node.host.mounts.idmaps import processes
from root.conftest import needs
from root.escape.conftest import Launch
from root.escape.tenants import Tenant
from root.linux import Node

pytestmark = needs("runc", "catatonit", "ssh")
SEATS = 4
TENANTS = int(os.environ.get("GPUAAS_SOAK_TENANTS", "104"))  # one after the other, on all seats; `make soak`: 10,000
# Opens it, has it mapped, and writes by both ways for as long as it lives.
HOLD = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(fd, 4096)
print("there", flush=True)
while True:
    mapped[:10] = b"still mine"
    os.pwrite(fd, b"still mine", 8192)
    time.sleep(0.01)
"""
FILES = 16  # that are open afterwards and were not before, for whatever else goes on in this process


def test_what_an_old_holder_has_is_refused(tenant: Launch) -> None:
    holder, other = tenant(), tenant(launch=False)
    for field in ("uid_base", "ssh_port", "seat", "slots"):
        taken = Tenant(holder.node, holder.people[0].file.parent, 2)
        taken.body = replace(taken.body, **{field: getattr(holder.body, field)})
        with pytest.raises(HostError, match=r"belong to|in use|has this address"):
            taken.launch()
        taken.release()
        assert holder.ssh("true").returncode == 0
    # A range that begins in the middle of another.
    other.body = replace(other.body, uid_base=holder.body.uid_base + 1000)
    with pytest.raises(HostError, match="belong to"):
        other.launch()
    other.release()
    # Without its agent's knowledge: the process of an old holder is enough.
    assert processes(holder.body.uid_base)
    with pytest.raises(HostError, match="running"):
        holder.host.rootfs_remove(holder.id)


@pytest.mark.slow
def test_seats_change_hands_quickly(shared_node: Node, clean_machine: None, tmp_path: Path) -> None:
    """On all seats at once. Each tenant brings its own, and finds nothing of the one before."""

    def use(seat: int) -> int:
        before = None
        for number in range(TENANTS // SEATS):
            one = Tenant(shared_node, tmp_path, seat).launch()
            try:
                if before is not None:
                    assert one.host_key != before.host_key
                if before is not None and number % 8 == 1:
                    assert one.ssh("ls /mine").returncode == 2
                    assert one.ssh("true", by=before.people[0]).returncode == 255
                elif number % 8 == 0:
                    assert one.root("touch /mine /dev/shm/mine").returncode == 0
            finally:
                assert all(scrub.clean for scrub in one.release())
            assert not processes(one.body.uid_base)
            assert one.id not in {each.id for each in one.host.present()}
            before = one
        return TENANTS // SEATS

    open_before = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(SEATS) as pool:
        assert sum(pool.map(use, range(SEATS))) >= 100
    assert len(os.listdir("/proc/self/fd")) <= open_before + FILES
    assert shared_node.host.present() == []
    shared_node.host.forget(shared_node.host.news())


def test_what_an_old_holder_had_open_is_of_no_use_when_its_gpu_is_anothers(tenant: Launch) -> None:
    """T11: a process that has left its session, with the GPU's memory open and mapped, ends with the machine."""
    first = tenant(seat=0)
    first.ssh("cat >hold.py", text=HOLD)
    holder = first.session("sudo setsid python3 hold.py /dev/gpuaas-sim/memory0")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "there\n"
    memory = first.node.config.paths.state / "simulated-gpus/memory/0"
    assert holders(memory)
    assert b"still mine" in memory.read_bytes()
    assert all(scrub.clean for scrub in first.release())
    holder.kill()
    holder.communicate()
    second = tenant(seat=0)
    assert second.gpus == first.gpus
    assert holders(memory) == set()
    assert second.root("sleep 0.2; tr -d '\\0' </dev/gpuaas-sim/memory0 | wc -c").stdout == "0\n"


def holders(file: Path) -> set[str]:
    """Processes anywhere on this host that have it open or mapped."""
    wanted, found = file.stat(), set()
    for link in [*Path("/proc").glob("[0-9]*/fd/*"), *Path("/proc").glob("[0-9]*/map_files/*")]:
        with suppress(OSError):  # it has ended
            there = link.stat()
            if (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.add(link.parts[2])
    return found
