"""What is written for the container of a machine, without one."""

import ctypes
import ctypes.util
import dataclasses
import errno
import json
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuaas.kit.errors import HostError
from gpuaas.node.host.container import seccomp
from gpuaas.node.host.container.boot import Boot, ReadOnlyBind, View
from gpuaas.node.host.container.capabilities import CAPABILITIES, MASK
from gpuaas.node.host.container.config import config
from gpuaas.node.host.container.rlimits import rlimits
from gpuaas.node.host.container.syscalls import ALL_BITS, NUMBERS
from gpuaas.node.host.gpus.cdi_edits import OciEdits
from node.samples import ID

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
KILL = 0x80000000
NOTHING = OciEdits([], [], [], [], {}, [])
BOOT = Boot(
    id=ID,
    hostname="machine",
    rootfs=Path("/run/gpuaas/allocations/x/rootfs"),
    uid_base=131072,
    user_namespace="/proc/1/fd/3",
    network_namespace="/proc/1/fd/4",
    cgroup=f"/gpuaas/{ID}",
    init=("/run/gpuaas/tools/init", "-P"),
    shm_bytes=1 << 30,
    binds=(ReadOnlyBind("/run/gpuaas/tools", "/run/gpuaas/tools"),),
    views=(View("/run/gpuaas/view", "/volumes"),),
)
# Each gave a tenant the host at some time, or is of no use inside.
NEVER = """
acct add_key bpf clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick init_module
io_uring_enter io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mount
mount_setattr move_mount name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open pivot_root quotactl
clone3 quotactl_fd reboot request_key setdomainname sethostname setns settimeofday swapoff swapon syslog umount2 unshare
uselib userfaultfd vhangup vm86
"""


# the filter


def run(program: bytes, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer: a machine for the few instructions that the program is made of."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    position = accumulator = 0
    while True:
        operation, if_true, if_false, operand = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                accumulator &= operand
            case 0x15:
                position += if_true if accumulator == operand else if_false
            case 0x35:
                position += if_true if accumulator >= operand else if_false
            case 0x06:
                return operand
            case _:
                pytest.fail(f"unknown instruction {operation:#x}")


def by_oci(made: dict[str, Any], name: str, arguments: tuple[int, ...]) -> int:
    """The same question to what runc is told, read as its specification says."""
    for rule in made["syscalls"]:
        if name in rule["names"] and all(_holds(each, arguments) for each in rule.get("args", [])):
            return ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else 0x50000 | rule["errnoRet"]
    return 0x50000 | int(made["defaultErrnoRet"])


def _holds(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    value = arguments[condition["index"]]
    if condition["op"] == "SCMP_CMP_MASKED_EQ":
        return bool(value & condition["value"] == condition["valueTwo"])
    assert condition["op"] == "SCMP_CMP_EQ"
    return bool(value == condition["value"])


PROGRAMS = {machine: seccomp.program(machine) for machine in NUMBERS}
OCI = {machine: seccomp.oci(machine) for machine in NUMBERS}
interesting = st.sampled_from([0, 1, 2, 3, 8, 10, 16, 38, 40, 0x11, 0x80001, 0x80003, 0x20000, 0x10000000, 0xFFFFFFFF])
arguments = st.builds(lambda low, high: (low | high << 32) & ALL_BITS, interesting | st.integers(0), st.integers(0, 1))


@pytest.mark.parametrize("machine", NUMBERS)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_both_filters_say_the_same(machine: str, data: st.DataObject) -> None:
    numbers = NUMBERS[machine]
    name = data.draw(st.sampled_from(sorted({*numbers.allowed, "clone3"})) | st.sampled_from(["clone", "socket"]))
    values = tuple(data.draw(arguments) for _ in range(6))
    number = numbers.allowed.get(name, numbers.clone3)
    assert run(PROGRAMS[machine], numbers.audit, number, values) == by_oci(OCI[machine], name, values)


@pytest.mark.parametrize("machine", NUMBERS)
def test_every_number(machine: str) -> None:
    numbers = NUMBERS[machine]
    program = seccomp.program(machine)
    # Arguments for which every call that asks for some is allowed.
    fitting = {numbers.allowed["socket"]: (1,), numbers.allowed["socketpair"]: (1,)}
    for number in range(2000):
        answer = run(program, numbers.audit, number, fitting.get(number, ()))
        expected = ALLOW if number in numbers.allowed.values() else EPERM
        assert answer == (ENOSYS if number == 435 or number > numbers.last else expected), number
    assert run(program, numbers.audit, 0x40000000) == run(program, numbers.audit, 0xFFFFFFFF) == KILL
    assert run(program, 0x40000003, 1) == KILL  # i386
    assert len(program) // 8 < 4096


@pytest.mark.parametrize("machine", NUMBERS)
def test_what_must_not_be_allowed_is_not(machine: str) -> None:
    assert not set(NEVER.split()) & set(NUMBERS[machine].allowed)
    assert len(set(NUMBERS[machine].allowed.values())) == len(NUMBERS[machine].allowed)


@pytest.mark.skipif(ctypes.util.find_library("seccomp") is None, reason="libseccomp is not installed")
@pytest.mark.parametrize("machine", NUMBERS)
def test_the_numbers_are_the_kernels(machine: str) -> None:
    """As libseccomp has them, which is also whom runc asks."""
    resolve = ctypes.CDLL(ctypes.util.find_library("seccomp")).seccomp_syscall_resolve_name_arch
    token = ctypes.c_uint32(NUMBERS[machine].audit)
    assert {name: resolve(token, name.encode()) for name in NUMBERS[machine].allowed} == NUMBERS[machine].allowed


def test_another_architecture_is_refused() -> None:
    with pytest.raises(HostError, match="riscv64"):
        seccomp.program("riscv64")


# rights


def test_capabilities() -> None:
    assert MASK == 0xA00425FB
    assert not {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_NET_ADMIN", "CAP_MKNOD", "CAP_DAC_READ_SEARCH"} & set(
        CAPABILITIES
    )


def test_limits_are_never_raised() -> None:
    for name, (soft, hard) in rlimits().items():
        most = resource.getrlimit(getattr(resource, name))[1]
        assert 0 <= soft <= hard
        assert most == resource.RLIM_INFINITY or hard <= most


# config.json


def test_a_config() -> None:
    made = config(BOOT)
    assert json.loads(json.dumps(made)) == made
    assert made["process"]["noNewPrivileges"] is False
    kinds = {each["type"]: each.get("path") for each in made["linux"]["namespaces"]}
    fresh = dict.fromkeys(("pid", "ipc", "uts", "mount", "cgroup"))
    assert kinds == fresh | {"user": "/proc/1/fd/3", "network": "/proc/1/fd/4"}
    assert made["linux"]["resources"]["devices"][0] == {"allow": False, "access": "rwm"}
    by_target = {each["destination"]: each["options"] for each in made["mounts"]}
    assert {"rbind", "rro", "nosuid", "nodev"} <= set(by_target["/run/gpuaas/tools"])
    assert {"rbind", "rslave", "nosuid", "nodev"} <= set(by_target["/volumes"])


def test_what_a_vendor_gives_is_never_setuid() -> None:
    given_by_cdi = {"destination": "/usr/lib/x", "type": "bind", "source": "/usr/lib/x", "options": ["bind", "suid"]}
    made = config(dataclasses.replace(BOOT, gpus=dataclasses.replace(NOTHING, mounts=[given_by_cdi])))
    assert made["mounts"][-1]["options"] == ["bind", "nosuid"]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../etc"},
        {"id": "x"},
        {"hostname": ""},
        {"hostname": "a b"},
        {"hostname": "-a"},
        {"rootfs": Path("relative")},
        {"rootfs": Path("/run/../etc")},
        {"uid_base": 0},
        {"uid_base": 1 << 32},
        {"user_namespace": ""},
        {"network_namespace": "proc/1/fd/4"},
        {"cgroup": "gpuaas"},
        {"cgroup": "/gpuaas/../.."},
        {"cgroup": ""},
        {"init": ()},
        {"init": ("init",)},
        {"shm_bytes": 0},
        *({"binds": (ReadOnlyBind("/x", target),)} for target in ("/", "/proc/sys", "/sys", "/dev/x", "x", "/a/../b")),
        {"binds": (ReadOnlyBind("x", "/x"),)},
        {"views": (View("/x", "/proc"),)},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(HostError) as refused:
        config(dataclasses.replace(BOOT, **change))
    assert not refused.value.transient


EVIL = ["\n", "\r", "\0", "\x1b[2J", "$(reboot)", ";", "`id`", '"', "\\", "\u2028", "\u202e", "\ud800", "é", "/", ".."]
texts = st.lists(st.sampled_from(EVIL) | st.text(max_size=5), max_size=4).map("".join)


@given(texts, st.sampled_from(["id", "hostname", "cgroup", "user", "init", "source", "target", "env", "hook", "mount"]))
@settings(max_examples=1000, deadline=None)
def test_a_text_arrives_as_it_is_or_is_refused(text: str, where: str) -> None:
    """T17: nothing that was given as one value is read back as another, or as two."""
    changes: dict[str, Any] = {
        "id": {"id": text},
        "hostname": {"hostname": text},
        "cgroup": {"cgroup": f"/gpuaas/{text}"},
        "user": {"user_namespace": f"/proc/{text}"},
        "init": {"init": ("/init", text)},
        "source": {"binds": (ReadOnlyBind(f"/{text}", "/opt/x"),)},
        "target": {"binds": (ReadOnlyBind("/x", f"/opt/{text}"),)},
        "env": {"gpus": dataclasses.replace(NOTHING, env=[f"NAME={text}"])},
        "hook": {"gpus": dataclasses.replace(NOTHING, hooks={"prestart": [{"path": "/x", "args": [text]}]})},
        "mount": {"gpus": dataclasses.replace(NOTHING, mounts=[_bind(text)])},
    }
    try:
        made = config(dataclasses.replace(BOOT, **changes[where]))
    except HostError:
        return
    written = json.dumps(made)
    assert json.loads(written) == made
    assert text.isprintable()
    assert written.isprintable()
    read = {
        "hostname": made["hostname"],
        "init": made["process"]["args"][1],
        "env": made["process"]["env"][-1].removeprefix("NAME="),
        "mount": made["mounts"][-1]["source"].removeprefix("/"),
    }
    assert read.get(where, text) == text


def _bind(text: str) -> dict[str, Any]:
    return {"destination": "/usr/lib/x", "type": "bind", "source": f"/{text}", "options": ["bind", "ro"]}
