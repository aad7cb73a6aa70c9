"""Simulated GPUs on the real kernel: A cannot open B's GPU, and B finds nothing of A's in its own."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.cgroups import layout as cgroup_layout
from gpuaas.node.host.cgroups.cgroup import Cgroup, cgroup, remove_prefix
from gpuaas.node.host.cgroups.kill import kill
from gpuaas.node.host.cgroups.limits import allow_devices
from gpuaas.node.host.gpus import simulated, simulated_cdi
from gpuaas.node.host.gpus.cdi_edits import Edits, oci, resolve
from gpuaas.node.host.gpus.cdi_read import read
from gpuaas.node.host.gpus.marks import Marks
from gpuaas.node.host.gpus.scrub import by_overwriting, scrub
from gpuaas.node.host.gpus.simulated import Simulated

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="makes device nodes, cgroups and containers"),
]
needs_runc = pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed")
PREFIX = f"gpuaas-test-{os.getpid()}"
FIRST_ID = 300_000
CANARY = "what tenant A wrote"
ALWAYS = ["c 1:3 rw", "c 1:5 rw", "c 1:8 rw", "c 1:9 rw"]  # null, zero, random, urandom: a program needs them to start


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[Simulated]:
    made = simulated.ensure(tmp_path / "simulated", "4xH100", "node-a")
    simulated_cdi.write(made)
    yield made
    simulated.remove(made.root)
    assert not made.root.exists()


@pytest.fixture
def group() -> Iterator[Cgroup]:
    layout = cgroup_layout.detect()
    made = cgroup(layout, "al-a", PREFIX)
    yield made
    kill(made)
    made.remove()
    remove_prefix(layout, PREFIX)
    assert not any((place / PREFIX).exists() for place in layout.hierarchies())


def edits(gpus: Simulated, *numbers: int) -> Edits:
    everything = gpus.gpus()
    return resolve(read([gpus.root / "cdi"]), [everything[number] for number in numbers])


def opened(path: str) -> str:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "open"


def test_the_nodes_are_nobodys_and_opening_one_says_so(gpus: Simulated) -> None:
    taken = Path("/proc/devices").read_text().partition("Block")[0].split()
    assert str(gpus.plan.major) not in taken
    for path in (gpus.root / "dev").iterdir():
        info = path.stat()
        assert stat.S_ISCHR(info.st_mode)
        assert os.major(info.st_rdev) == gpus.plan.major
        assert stat.S_IMODE(info.st_mode) == 0o666
        assert opened(str(path)) == "ENXIO"
    assert stat.S_IMODE(gpus.root.stat().st_mode) == 0o700
    assert len(list((gpus.root / "dev").iterdir())) == 4 + 3


def test_making_them_again_changes_nothing_and_repairs_what_was_changed(gpus: Simulated) -> None:
    def seen() -> dict[str, tuple[int, int]]:
        return {path.name: (path.lstat().st_ino, path.lstat().st_rdev) for path in (gpus.root / "dev").iterdir()}

    before = seen()
    assert simulated.ensure(gpus.root, "4xH100", "node-a") == gpus
    assert seen() == before
    device = gpus.root / "dev"
    (device / "gpu1").unlink()
    (device / "gpu2").unlink()
    (device / "gpu2").touch()
    (device / "gpu3").chmod(0o600)
    (device / ".new-gpu1").touch()
    simulated.ensure(gpus.root, "4xH100", "node-a")
    assert {name: device for name, (_, device) in seen().items()} == {
        name: device for name, (_, device) in before.items()
    }
    (gpus.root / "plan.json").write_text("{torn")
    assert simulated.ensure(gpus.root, "4xH100", "node-a") == gpus


def test_another_number_and_vendor(gpus: Simulated) -> None:
    other = simulated.ensure(gpus.root, "2xMI300X", "node-a")
    assert sorted(path.name for path in (gpus.root / "dev").iterdir()) == ["gpu0", "gpu1", "kfd"]
    assert other.plan.major == gpus.plan.major
    simulated_cdi.write(other)
    made = edits(other, 1, 0)
    assert [node.path for node in made.nodes] == ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"]
    assert "HIP_VISIBLE_DEVICES=0,1" in made.env
    assert not any(item.startswith("CUDA") for item in made.env)


def test_two_agents_on_one_machine_have_other_numbers(gpus: Simulated, tmp_path: Path) -> None:
    other = simulated.ensure(tmp_path / "other", "4xH100", "node-b")
    mine = {path.stat().st_rdev for path in (gpus.root / "dev").iterdir()}
    assert not mine & {path.stat().st_rdev for path in (other.root / "dev").iterdir()}
    simulated.remove(other.root)


def test_they_work_also_where_the_state_directory_allows_no_devices(tmp_path: Path) -> None:
    """The mount here ends with the process."""
    program = (
        "import os, pathlib, sys\n"
        "from gpuaas.node.host.gpus import simulated\n"
        "made = simulated.ensure(pathlib.Path(sys.argv[1]) / 'state', '1xH100', 'node-a')\n"
        "os.open(made.gpus()[0].nodes[0], os.O_RDWR)\n"
    )
    script = f'mount -t tmpfs -o nodev none "$1" && exec {sys.executable} -c "$0" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "No such device or address" in done.stderr  # and not: permission denied


def test_a_cgroup_opens_its_own_gpu_and_no_other(gpus: Simulated, group: Cgroup) -> None:
    group.ensure()
    made = edits(gpus, 1)
    rules = [f"c {node.major}:{node.minor} {node.access}" for node in made.nodes]
    if not allow_devices(group, ALWAYS + rules):
        pytest.skip("cgroup v2: the OCI runtime does it")
    pid = os.fork()
    if pid == 0:
        group.join(os.getpid())
        mine = {opened(node.host_path) for node in made.nodes}
        others = {opened(str(gpus.root / f"dev/gpu{number}")) for number in (0, 2, 3)}
        os._exit(0 if (mine, others) == ({"ENXIO"}, {"EPERM"}) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert allow_devices(group, ALWAYS + rules)


def test_a_cgroup_opens_its_own_instance_and_no_other_of_the_same_gpu(tmp_path: Path, group: Cgroup) -> None:
    cut = simulated.ensure(tmp_path / "cut", "1xH100:7x1g.10gb,1xH100", "node-a")
    simulated_cdi.write(cut)
    group.ensure()
    made = edits(cut, 1, 2)
    mine = [node.host_path.removeprefix(f"{cut.root}/dev/") for node in made.nodes]
    assert mine == ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "card0", "gpu1", "gpu2"]
    assert [mount.container_path for mount in made.mounts] == ["/dev/gpuaas-sim/memory1", "/dev/gpuaas-sim/memory2"]
    assert f"CUDA_VISIBLE_DEVICES={cut.gpus()[1].uuid},{cut.gpus()[2].uuid}" in made.env
    rules = [f"c {node.major}:{node.minor} {node.access}" for node in made.nodes]
    if not allow_devices(group, ALWAYS + rules):
        pytest.skip("cgroup v2: the OCI runtime does it")
    pid = os.fork()
    if pid == 0:
        group.join(os.getpid())
        own = {opened(node.host_path) for node in made.nodes}
        others = {opened(str(cut.root / f"dev/gpu{number}")) for number in (0, 3, 4, 5, 6, 7)}
        os._exit(0 if (own, others) == ({"ENXIO"}, {"EPERM"}) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    simulated.remove(cut.root)


LOOK = """
import errno, glob, json, os, sys
def opened(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "open"
memory = open("/dev/gpuaas-sim/memory0", "r+b", buffering=0)
before = memory.read()
memory.seek(len(before) - len(sys.argv[1]))
memory.write(sys.argv[1].encode())
nodes = {path: opened(path) for path in glob.glob("/dev/nvidia*") + ["/dev/foreign"]}
seen = {"env": dict(os.environ), "nodes": nodes, "zero": not before.strip(b"\\0"), "uid": os.stat("/").st_uid}
print(json.dumps(seen))
"""


def config(made: Edits, foreign: str, cgroups_path: str) -> dict[str, Any]:
    gets = oci(made)
    bind = ["rbind", "ro", "nosuid", "nodev"]
    kinds = ("pid", "mount", "ipc", "uts", "network", "user", "cgroup")
    ids = [{"containerID": 0, "hostID": FIRST_ID, "size": 65536}]
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": bind},
        *gets.mounts,
        {"destination": "/dev/foreign", "type": "bind", "source": foreign, "options": ["bind"]},
    ]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "hostname": "test",
        "process": {
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
            "args": ["/usr/bin/python3", "-I", "-c", LOOK, CANARY],
            "env": ["PATH=/usr/bin", *gets.env],
        },
        "mounts": mounts,
        "hooks": gets.hooks,
        "linux": {
            "namespaces": [{"type": kind} for kind in kinds],
            "uidMappings": ids,
            "gidMappings": ids,
            "devices": gets.devices,
            "cgroupsPath": cgroups_path,
            "resources": {"devices": [{"allow": False, "access": "rwm"}, *gets.rules]},
        },
    }


def run_container(directory: Path, made: Edits, foreign: str, group: Cgroup) -> dict[str, Any]:
    rootfs = directory / "rootfs"
    rootfs.mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (rootfs / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "usr"):
        (rootfs / name).mkdir()
    for path in (rootfs, *rootfs.iterdir()):
        os.chown(path, FIRST_ID, FIRST_ID, follow_symlinks=False)
    for parent in (directory, *directory.parents):
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o711)  # root inside is nobody here, and must get through
    (directory / "config.json").write_text(json.dumps(config(made, foreign, f"/{group.path}")))
    command = ["runc", "--root", str(directory / "runc"), "run", "--bundle", str(directory), f"test-{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@needs_runc
def test_a_container_has_its_gpus_and_nothing_of_the_last_tenant(
    gpus: Simulated, group: Cgroup, tmp_path: Path
) -> None:
    """G01, T11 and T16 in one life of GPU 2."""
    foreign = str(gpus.root / "dev/gpu0")
    marks = Marks(tmp_path / "marks")
    uuid = gpus.gpus()[2].uuid
    seen = run_container(tmp_path / "a", edits(gpus, 2), foreign, group)
    assert seen["env"]["CUDA_VISIBLE_DEVICES"] == seen["env"]["NVIDIA_VISIBLE_DEVICES"] == "0"
    mine = {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
    assert seen["nodes"] == dict.fromkeys(mine, "ENXIO") | {"/dev/foreign": "EPERM"}
    assert seen["uid"] == 0
    assert gpus.memory(uuid).read_bytes().endswith(CANARY.encode())
    assert scrub(uuid, marks, by_overwriting(gpus, uuid)).clean
    assert run_container(tmp_path / "b", edits(gpus, 2, 3), foreign, group)["zero"]
    marks.close()


@needs_runc
def test_without_a_scrub_the_next_tenant_would_see_it(gpus: Simulated, group: Cgroup, tmp_path: Path) -> None:
    """That the check above can fail."""
    foreign = str(gpus.root / "dev/gpu0")
    run_container(tmp_path / "a", edits(gpus, 1), foreign, group)
    assert not run_container(tmp_path / "b", edits(gpus, 1), foreign, group)["zero"]


def test_a_node_that_somebody_replaced_is_not_handed_out(gpus: Simulated) -> None:
    path = gpus.root / "dev/gpu1"
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(5, 0))
    with pytest.raises(HostError, match="write the spec again"):
        edits(gpus, 1)
