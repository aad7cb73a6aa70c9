"""T8: a runtime that leaves out one thing, or does one thing more, is found out."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.container.boot import ReadOnlyBind, View
from gpuaas.node.host.container.verify import verify
from gpuaas.node.host.mounts.mounts import Attribute, Propagation
from gpuaas.node.host.mounts.operations import Directory, FileSystem, Propagate, Unmount
from root.conftest import needs
from root.machines import Machine, network_namespace

pytestmark = needs("runc", "catatonit")
TMPFS = {"destination": "/mnt", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]}
ANY_BLOCK_DEVICE = {"allow": True, "type": "b", "access": "rwm"}


def without(unwanted: str) -> Any:
    """The list without one of its members: a namespace, a mount, a path."""
    return lambda old: [
        each
        for each in old
        if unwanted not in ([each.get("type"), each.get("destination")] if isinstance(each, dict) else [each])
    ]


def mount_without(target: str, *options: str) -> Any:
    def change(old: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for each in old:
            if each["destination"] == target:
                each["options"] = [option for option in each["options"] if option not in options]
        return old

    return change


def more(*what: Any) -> Any:
    return lambda old: [*old, *what]


SPOILED: dict[str, tuple[str, dict[str, Any]]] = {
    "a capability": ("CapBnd is", {"process": {"capabilities": {"bounding": more("CAP_SYS_ADMIN")}}}),
    "a capability in use": (
        "CapEff is",
        {"process": {"capabilities": {key: more("CAP_NET_ADMIN") for key in ("bounding", "permitted", "effective")}}},
    ),
    "no filter": ("Seccomp is 0", {"linux": {"seccomp": None}}),
    "no sudo": ("NoNewPrivs is 1", {"process": {"noNewPrivileges": True}}),
    "another user": ("Uid is", {"process": {"user": {"uid": 7}}}),
    "another group": ("Groups is", {"process": {"user": {"additionalGids": [5]}}}),
    "the host's cgroup namespace": ("cgroup namespace is the host's", {"linux": {"namespaces": without("cgroup")}}),
    "the host's ipc namespace": (
        "ipc namespace is the host's",
        {"linux": {"namespaces": without("ipc")}, "mounts": without("/dev/mqueue")},
    ),
    "another cgroup": ("its cgroup of memory is", {"linux": {"cgroupsPath": lambda old: f"{old}-other"}}),
    "another directory": ("not in its root", {"process": {"cwd": "/etc"}}),
    "a device": ("may use the device b", {"linux": {"resources": {"devices": more(ANY_BLOCK_DEVICE)}}}),
    "keys are seen": ("/proc/keys is not hidden", {"linux": {"maskedPaths": without("/proc/keys")}}),
    "disks are seen": ("/sys/block is not hidden", {"linux": {"maskedPaths": without("/sys/block")}}),
    "sysctls can be written": ("/proc/sys is writable", {"linux": {"readonlyPaths": without("/proc/sys")}}),
    "writable sysfs": ("/sys is not ro", {"mounts": mount_without("/sys", "ro")}),
    "writable cgroups": ("is not ro", {"mounts": mount_without("/sys/fs/cgroup", "ro")}),
    "suid in shm": ("/dev/shm is not nosuid", {"mounts": mount_without("/dev/shm", "nosuid")}),
    "devices in run": ("/run is not nodev", {"mounts": mount_without("/run", "nodev")}),
    "a writable tool": (
        "tools/init is not ro",
        {"mounts": mount_without("/run/gpuaas/tools/init", "ro", "rro")},
    ),
    "nothing at all": ("nothing is mounted on /run/lock", {"mounts": without("/run/lock")}),
    "another mount": ("something is mounted on /mnt", {"mounts": more(TMPFS)}),
    "a mount on a mount": ("2 mounts are on /run/lock", {"mounts": more(TMPFS | {"destination": "/run/lock"})}),
    "mounts that leave": ("leave the machine", {"linux": {"rootfsPropagation": "rshared"}}),
}


def test_a_file_of_the_hosts_that_is_left_open(machine: Machine, work: Path) -> None:
    with (work / "log").open("w") as log:
        machine.start(stdout=log)
    with pytest.raises(HostError, match=f"it has {work}/log open"):
        verify(machine.pid, machine.boot, machine.layout)


def test_another_program(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuaas.node.host.container.verify._EXEC_SECONDS", 0.5)
    machine.start({"process": {"args": lambda _: ["/usr/bin/sleep", "60"]}})
    with pytest.raises(HostError, match="it runs sleep, not init"):
        verify(machine.pid, machine.boot, machine.layout)


@pytest.mark.parametrize("what", SPOILED)
def test_one_difference_is_named(machine: Machine, what: str) -> None:
    says, spoil = SPOILED[what]
    machine.start(spoil)
    with pytest.raises(HostError) as refused:
        verify(machine.pid, machine.boot, machine.layout)
    assert says in refused.value.cause
    assert not refused.value.transient


def test_another_range_of_ids_and_other_namespaces(machine: Machine) -> None:
    machine.start()
    wrong = dataclasses.replace(machine.boot, uid_base=machine.boot.uid_base + 65536)
    with pytest.raises(HostError, match=r"Uid is .*uid_map is .*gid_map is "):
        verify(machine.pid, wrong, machine.layout)
    user = os.open(machine.boot.user_namespace, os.O_RDONLY)
    foreign = network_namespace(user)
    wrong = dataclasses.replace(machine.boot, network_namespace=f"/proc/self/fd/{foreign}")
    with pytest.raises(HostError, match="net namespace is not the one"):
        verify(machine.pid, wrong, machine.layout)
    os.close(foreign)
    os.close(user)


def test_the_hosts_own_processes_are_no_machine(machine: Machine) -> None:
    with pytest.raises(HostError, match="not the first") as refused:
        verify(os.getpid(), machine.boot, machine.layout)
    assert "user namespace is the host's" in refused.value.cause


def test_a_process_that_is_gone(machine: Machine) -> None:
    machine.start()
    pid = machine.pid
    machine.end()
    with pytest.raises(HostError):
        verify(pid, machine.boot, machine.layout)


@pytest.mark.acceptance("D05")
def test_what_is_mounted_below_something_read_only_is_so_too(machine: Machine, work: Path) -> None:
    """V5. The nested mount is made where the bind comes from, in the machine's pinned mount namespace."""
    outer = work / "outer"
    (outer / "inner").mkdir(parents=True)
    machine.change(FileSystem("tmpfs", str(outer / "inner")))
    binds = (*machine.boot.binds, ReadOnlyBind(str(outer), "/opt/given"))
    machine.start(binds=binds)
    verify(machine.pid, machine.boot, machine.layout)
    for directory in ("/opt/given", "/opt/given/inner"):
        assert machine.exec("/usr/bin/touch", f"{directory}/file").code != 0
    machine.end()
    machine.start({"mounts": mount_without("/opt/given", "rro")})
    with pytest.raises(HostError, match="/opt/given/inner is not ro"):
        verify(machine.pid, machine.boot, machine.layout)


@pytest.mark.acceptance("D05")
def test_a_place_for_runtimes_that_can_be_written_is_found_out(machine: Machine, work: Path) -> None:
    """The place itself, and a version in it."""
    place = work / "view"
    place.mkdir()
    machine.change(
        FileSystem("tmpfs", str(place), {"mode": "0755"}),
        Propagate(str(place), Propagation.SHARED),
        Directory(str(place / "tool")),
    )
    machine.start(views=(View(str(place), "/opt/gpuaas/runtimes", read_only=True),))
    verify(machine.pid, machine.boot, machine.layout)
    assert "Read-only" in machine.exec("/usr/bin/touch", "/opt/gpuaas/runtimes/file").output
    machine.change(FileSystem("tmpfs", str(place / "tool"), attributes=Attribute.NOSUID | Attribute.NODEV))
    with pytest.raises(HostError, match="/opt/gpuaas/runtimes/tool is not ro"):
        verify(machine.pid, machine.boot, machine.layout)
    machine.change(Unmount(str(place / "tool")))
    machine.end()
    machine.start({"mounts": mount_without("/opt/gpuaas/runtimes", "ro")})
    with pytest.raises(HostError, match="/opt/gpuaas/runtimes is not ro"):
        verify(machine.pid, machine.boot, machine.layout)
