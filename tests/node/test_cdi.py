"""CDI specs: what is refused, and what the OCI spec gets. Device nodes here are the machine's own harmless ones."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus.cdi import ALLOWED_HOOKS, AllowedHook, Refused, parse
from gpuaas.node.host.gpus.cdi_edits import INDEX, oci, resolve
from gpuaas.node.host.gpus.cdi_read import Library, check_program, read
from gpuaas.node.host.gpus.gpu import Gpu

ME = os.getuid()
PTMX = os.path.realpath("/dev/ptmx")  # like /dev/tty a character device that is everywhere, and nobody's GPU


def spec(device: dict[str, Any] | None = None, shared: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    edits = device if device is not None else {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/tty"}]}
    known = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "containerEdits": shared or {}}
    return known | {"devices": [{"name": "GPU-1", "containerEdits": edits}]} | more


def put(directory: Path, content: dict[str, Any], name: str = "nvidia.json") -> Path:
    directory.mkdir(exist_ok=True, mode=0o755)
    file = directory / name
    file.write_text(json.dumps(content))
    file.chmod(0o644)
    return file


def library(directory: Path) -> Library:
    return read([directory], owner=ME)


def gpu(name: str = "GPU-1", node: str = "/dev/tty", index: int = 0) -> Gpu:
    return Gpu(name, index, "nvidia", "H100", 1, nodes=(node,), cdi=(f"nvidia.com/gpu={name}",))


def refused(content: dict[str, Any]) -> str:
    with pytest.raises(Refused) as caught:
        parse(json.dumps(content).encode())
    return str(caught.value)


NVIDIA_HOOK = {
    "hookName": "createContainer",
    "path": "/usr/bin/nvidia-cdi-hook",
    "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu"],
    "env": ["NVIDIA_CTK_DEBUG=false"],
}


def test_a_spec_as_nvidia_writes_it_is_understood() -> None:
    shared = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm", "major": 510, "fileMode": 438}],
        "hooks": [NVIDIA_HOOK],
        "mounts": [
            {
                "hostPath": "/usr/bin/nvidia-smi",
                "containerPath": "/usr/bin/nvidia-smi",
                "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
            }
        ],
        "additionalGids": [44],
    }
    made = parse(json.dumps(spec(shared=shared)).encode())
    assert made.container_edits.hooks[0].args[1] == "update-ldcache"


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ({"hooks": [NVIDIA_HOOK | {"path": "/tmp/hook"}]}, "allow-list"),
        ({"hooks": [NVIDIA_HOOK | {"args": ["nvidia-cdi-hook", "enable-cuda-compat"]}]}, "allow-list"),
        ({"hooks": [NVIDIA_HOOK | {"args": []}]}, "allow-list"),
        ({"hooks": [NVIDIA_HOOK | {"hookName": "poststop"}]}, "allow-list"),
        ({"hooks": [NVIDIA_HOOK | {"env": ["LD_PRELOAD=/proc/self/cwd/x.so"]}]}, "LD_PRELOAD"),
        ({"env": ["LD_PRELOAD=/x.so"]}, "LD_PRELOAD"),
        ({"env": ["PATH=/evil"]}, "PATH"),
        ({"env": ["A=b\nLD_PRELOAD=/x"]}, "env"),
        ({"env": ["no value"]}, "env"),
        ({"deviceNodes": [{"path": "/dev/../etc/x"}]}, "plain absolute path"),
        ({"deviceNodes": [{"path": "/etc/passwd"}]}, "not below /dev"),
        ({"deviceNodes": [{"path": "relative"}]}, "path"),
        ({"deviceNodes": [{"path": "/dev/sda", "type": "b"}]}, "character device"),
        ({"deviceNodes": [{"path": "/dev/mem", "major": 1, "minor": 1}]}, "host's memory"),
        ({"deviceNodes": [{"path": "/dev/x", "permissions": "rwx"}]}, "permissions"),
        ({"mounts": [{"hostPath": "/", "containerPath": "/"}]}, "mounts over /"),
        ({"mounts": [{"hostPath": "/x", "containerPath": "/proc/sys"}]}, "mounts over"),
        ({"mounts": [{"hostPath": "/x", "containerPath": "/a\n/b"}]}, "containerPath"),
        ({"mounts": [{"hostPath": "tmpfs", "containerPath": "/a"}]}, "hostPath"),
        ({"mounts": [{"hostPath": "/x", "containerPath": "/a", "type": "tmpfs"}]}, "type tmpfs"),
        ({"mounts": [{"hostPath": "/x", "containerPath": "/a", "options": ["suid"]}]}, "suid"),
        ({"mounts": [{"hostPath": "/x", "containerPath": "/a", "options": ["rshared"]}]}, "rshared"),
        ({"intelRdt": {"closID": "x"}}, "not supported"),
        ({"netDevices": [{"hostInterfaceName": "eth0"}]}, "not supported"),
        ({"somethingNew": 1}, "somethingNew"),
    ],
)
def test_what_is_not_known_to_be_harmless_is_refused_by_name(edits: dict[str, Any], why: str) -> None:
    assert why in refused(spec(device=edits))
    assert why in refused(spec(shared=edits))


@pytest.mark.parametrize(
    "more",
    [
        {"cdiVersion": "2.0.0"},
        {"cdiVersion": "0.6.0\n"},
        {"kind": "nvidia"},
        {"kind": "nvidia.com/gpu\n"},
        {"devices": [{"name": "a", "containerEdits": {}}] * 2},
        {"devices": [{"name": "a=b", "containerEdits": {}}]},
    ],
)
def test_malformed_specs_are_refused(more: dict[str, Any]) -> None:
    refused(spec(**more))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_spec_or_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        parse(data)


@given(st.text(max_size=40))
def test_a_value_comes_through_unchanged_or_is_refused(text: str) -> None:
    """T17: nothing of a value can become a line, a variable or a path of its own."""
    edits = {"env": [f"A={text}"], "mounts": [{"hostPath": f"/h/{text}", "containerPath": f"/c/{text}"}]}
    try:
        made = parse(json.dumps(spec(device=edits)).encode()).devices[0].container_edits
    except Refused:
        return
    assert made.env == [f"A={text}"]
    assert made.mounts[0].container_path == os.path.normpath(f"/c/{text}")
    assert text.isprintable() or not any(ord(each) < 32 for each in text)


def test_a_hook_can_be_allowed_by_the_operator() -> None:
    mine = NVIDIA_HOOK | {"path": "/opt/hook", "args": ["hook", "go", "far"], "env": []}
    allowed = (*ALLOWED_HOOKS, AllowedHook("/opt/hook", ("hook", "go")))
    made = parse(json.dumps(spec(shared={"hooks": [mine]})).encode(), allowed_hooks=allowed)
    assert made.container_edits.hooks[0].path == "/opt/hook"


def test_specs_are_read_and_yaml_too(tmp_path: Path) -> None:
    put(tmp_path / "cdi", spec())
    other = spec() | {"kind": "amd.com/gpu"}
    put(tmp_path / "cdi", other, "amd.yaml")  # JSON is YAML
    (tmp_path / "cdi/readme.txt").write_text("not a spec")
    found = library(tmp_path / "cdi")
    assert sorted(found.devices) == ["amd.com/gpu=GPU-1", "nvidia.com/gpu=GPU-1"]
    assert found.refused == {}
    assert read([tmp_path / "absent"], owner=ME) == Library()


def test_one_bad_spec_does_not_hide_the_others(tmp_path: Path) -> None:
    put(tmp_path / "cdi", spec())
    bad = put(tmp_path / "cdi", {"cdiVersion": "x"}, "bad.json")
    found = library(tmp_path / "cdi")
    assert list(found.devices) == ["nvidia.com/gpu=GPU-1"]
    assert list(found.refused) == [str(bad)]


def test_a_spec_that_others_can_change_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "cdi"
    file = put(directory, spec())
    file.chmod(0o664)
    assert "can change it" in library(directory).refused[str(file)]
    file.chmod(0o644)
    os.link(file, tmp_path / "another name")
    assert "can change it" in library(directory).refused[str(file)]
    (tmp_path / "another name").unlink()
    directory.chmod(0o777)
    assert "can write" in library(directory).refused[str(directory)]
    directory.chmod(0o1777)
    assert "can write" in library(directory).refused[str(directory)]
    directory.chmod(0o755)
    tmp_path.chmod(0o777)
    assert "can replace" in library(directory).refused[str(directory)]
    tmp_path.chmod(0o700)
    assert library(directory).refused == {}


def test_a_spec_of_another_user_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path / "cdi", spec())
    found = read([tmp_path / "cdi"], owner=ME + 1)
    assert found.devices == {}
    if ME == 0:
        os.chown(file, 12345, 0)
        assert "can change it" in library(tmp_path / "cdi").refused[str(file)]


def test_links_fifos_and_huge_files_neither_pass_nor_hang(tmp_path: Path) -> None:
    directory = tmp_path / "cdi"
    put(tmp_path / "elsewhere", spec())
    directory.mkdir()
    (directory / "link.json").symlink_to(tmp_path / "elsewhere/nvidia.json")
    os.mkfifo(directory / "fifo.json", 0o600)
    (directory / "huge.json").write_bytes(b" " * (1024 * 1024 + 1))
    found = library(directory)
    assert found.devices == {}
    assert len(found.refused) == 3


def test_the_later_directory_wins_and_two_of_a_name_in_one_are_none(tmp_path: Path) -> None:
    put(tmp_path / "etc", spec())
    late = put(tmp_path / "run", spec())
    assert read([tmp_path / "etc", tmp_path / "run"], owner=ME).devices["nvidia.com/gpu=GPU-1"].file == str(late)
    for name in ("b.json", "c.json"):
        put(tmp_path / "etc", spec(), name)
    found = library(tmp_path / "etc")
    assert found.devices == {}
    assert "nvidia.com/gpu=GPU-1" in found.refused


def test_the_oci_spec_gets_exactly_the_gpus(tmp_path: Path) -> None:
    shared = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "A=1"],
        "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": PTMX, "permissions": "rwm"}],
        "mounts": [{"hostPath": "/usr/bin/env", "containerPath": "/usr/bin/smi", "options": ["ro", "nosuid"]}],
    }
    put(tmp_path / "cdi", spec(shared=shared))
    edits = resolve(library(tmp_path / "cdi"), [gpu()])
    made = oci(edits)
    assert made.env == ["NVIDIA_VISIBLE_DEVICES=0", "A=1", "CUDA_VISIBLE_DEVICES=0"]
    assert made.devices == []
    assert [(rule["major"], rule["minor"], rule["access"]) for rule in made.rules] == [(5, 2, "rw"), (5, 0, "rw")]
    assert [mount["destination"] for mount in made.mounts] == ["/dev/nvidiactl", "/dev/nvidia0", "/usr/bin/smi"]
    assert "nodev" not in made.mounts[1]["options"]
    assert made.mounts[2]["options"] == ["ro", "nosuid", "bind"]
    alone = oci(edits, user_namespace=False)
    assert [device["path"] for device in alone.devices] == ["/dev/nvidiactl", "/dev/nvidia0"]
    assert len(alone.mounts) == 1


def test_gpus_are_numbered_anew_only_where_the_spec_allows_it(tmp_path: Path) -> None:
    devices = [
        {
            "name": f"GPU-{number}",
            "annotations": {INDEX: str(number)},
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/nvidia{number}", "hostPath": host}],
                "mounts": [{"hostPath": f"/m/{number}", "containerPath": f"/dev/gpuaas-sim/memory{number}"}],
            },
        }
        for number, host in ((5, "/dev/tty"), (3, PTMX))
    ]
    put(tmp_path / "cdi", spec(devices=devices))
    edits = resolve(library(tmp_path / "cdi"), [gpu("GPU-5"), gpu("GPU-3", PTMX)])
    assert [(node.path, node.host_path) for node in edits.nodes] == [
        ("/dev/nvidia0", "/dev/tty"),
        ("/dev/nvidia1", PTMX),
    ]
    assert [mount.container_path for mount in edits.mounts] == ["/dev/gpuaas-sim/memory0", "/dev/gpuaas-sim/memory1"]


@pytest.mark.parametrize(
    ("node", "mine", "why"),
    [
        ({"hostPath": "/dev/tty", "major": 9}, "/dev/tty", "write the spec again"),
        ({"hostPath": "/dev/null"}, "/dev/null", "not a device"),
        ({"hostPath": "/etc/passwd"}, "/etc/passwd", "not a device"),
        ({"hostPath": "/dev/absent"}, "/dev/absent", "No such file"),
    ],
)
def test_a_node_that_is_not_what_the_spec_says_is_refused(
    tmp_path: Path, node: dict[str, Any], mine: str, why: str
) -> None:
    put(tmp_path / "cdi", spec(device={"deviceNodes": [{"path": "/dev/nvidia0"} | node]}))
    with pytest.raises(HostError, match=why):
        resolve(library(tmp_path / "cdi"), [gpu(node=mine)])


def test_a_spec_from_before_the_gpus_changed_places_is_refused(tmp_path: Path) -> None:
    """The order on the bus has changed: the spec would hand out another tenant's GPU."""
    put(tmp_path / "cdi", spec(device={"deviceNodes": [{"path": "/dev/tty0"}]}))
    with pytest.raises(HostError, match="/dev/tty0, but it is /dev/tty1"):
        resolve(library(tmp_path / "cdi"), [gpu(node="/dev/tty1")])


def test_an_unknown_gpu_is_an_error_that_says_what_was_refused(tmp_path: Path) -> None:
    put(tmp_path / "cdi", {"cdiVersion": "x"})
    with pytest.raises(HostError, match=r"no CDI spec has it \(.*nvidia.json"):
        resolve(library(tmp_path / "cdi"), [gpu()])


def test_the_program_of_a_hook_must_be_roots(tmp_path: Path) -> None:
    program = tmp_path / "hook"
    program.touch(mode=0o755)
    check_program(str(program), owner=ME)
    program.chmod(0o777)
    with pytest.raises(HostError, match="can change it"):
        check_program(str(program), owner=ME)
    with pytest.raises(HostError, match="No such file"):
        check_program(str(tmp_path / "absent"), owner=ME)
