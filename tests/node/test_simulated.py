"""Simulated GPUs, as far as no root is needed. Their device nodes are tried in tests/root/test_simulated_devices.py."""

from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.gpus import simulated
from gpuaas.node.host.gpus.cdi import parse
from gpuaas.node.host.gpus.cdi_edits import INDEX
from gpuaas.node.host.gpus.simulated import MEMORY_BYTES, Plan, Simulated, free_major
from gpuaas.node.host.gpus.simulated_cdi import FILE, spec, write
from gpuaas.node.host.gpus.simulated_files import make_memory

DEVICES = "Character devices:\n  1 mem\n120 taken\n121 taken\n\nBlock devices:\n122 other\n"


@pytest.fixture
def gpus(tmp_path: Path) -> Simulated:
    for name in ("memory", "health", "scrub", "resets"):
        (tmp_path / name).mkdir()
    make_memory(tmp_path / "memory", {"0", "1", "2", "3"}, MEMORY_BYTES)
    return Simulated(tmp_path, Plan("4xH100", "node-a", 120, 2048))


def test_the_major_is_free_and_stays() -> None:
    assert free_major(DEVICES) == 122
    assert free_major(DEVICES, kept=125) == 125
    assert free_major(DEVICES, kept=120) == 122
    full = "Character devices:\n" + "".join(f"{number} x\n" for number in range(256))
    with pytest.raises(HostError, match="belongs to a driver"):
        free_major(full)


def test_they_look_like_real_ones(gpus: Simulated) -> None:
    first, *_ = found = gpus.gpus()
    assert (len(found), first.vendor, first.model, first.memory_mib) == (4, "nvidia", "H100", 81559)
    assert (first.driver, first.toolkit) == ("550.90", "12.4")
    assert len({gpu.uuid for gpu in found}) == 4
    assert [(gpu.numa, gpu.link_group) for gpu in found] == [(0, 0), (0, 0), (1, 0), (1, 0)]
    amd = Simulated(gpus.root, Plan("2xMI300X", "node-a", 120, 0)).gpus()[0]
    assert (amd.vendor, amd.memory_mib, amd.toolkit) == ("amd", 196608, "6.2")


def test_the_spec_passes_our_own_checks(gpus: Simulated) -> None:
    (gpus.root / "cdi").mkdir(mode=0o700)
    write(gpus)
    file = gpus.root / "cdi" / FILE
    before = file.stat().st_ino
    write(gpus)
    assert file.stat().st_ino == before
    made = parse(file.read_bytes())
    assert made == spec(gpus)
    names = [node.path for node in made.container_edits.device_nodes]
    assert names == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    third = made.devices[2]
    assert third.annotations == {INDEX: "2"}
    assert third.container_edits.device_nodes[0].path == "/dev/nvidia2"
    assert third.container_edits.mounts[0].container_path == "/dev/gpuaas-sim/memory2"
    amd = spec(Simulated(gpus.root, Plan("2xMI300X", "node-a", 120, 0)))
    assert [node.path for node in amd.container_edits.device_nodes] == ["/dev/kfd"]
    assert amd.devices[1].container_edits.device_nodes[0].path == "/dev/dri/renderD129"


def test_health_is_what_a_file_says(gpus: Simulated) -> None:
    (gpus.root / "health/2").write_text("XID 79\n\x1b[31m" + "x" * 10_000)
    troubles = [gpu.trouble for gpu in gpus.gpus()]
    assert troubles[:2] == ["", ""]
    assert troubles[2].startswith("XID 79 [31mx")
    assert len(troubles[2]) <= 500
    (gpus.root / "health/2").write_text("")
    assert gpus.gpus()[2].trouble == "unwell, for no stated reason"


def test_resets_are_counted(gpus: Simulated) -> None:
    one, other = (gpu.uuid for gpu in gpus.gpus()[:2])
    gpus.reset(one)
    gpus.reset(one)
    assert (gpus.resets(one), gpus.resets(other)) == (2, 0)


def test_memory_that_a_tenant_made_longer_is_cut_back(gpus: Simulated) -> None:
    path = gpus.memory(gpus.gpus()[1].uuid)
    with path.open("r+b") as file:
        file.truncate(10 * MEMORY_BYTES)
    gpus.clamp()
    assert path.stat().st_size == MEMORY_BYTES


def test_the_memory_of_a_gpu_survives_being_made_again(gpus: Simulated) -> None:
    path = gpus.memory(gpus.gpus()[0].uuid)
    path.write_bytes(b"canary")
    make_memory(gpus.root / "memory", {"0"}, MEMORY_BYTES)
    assert path.read_bytes()[:6] == b"canary"
    assert path.stat().st_size == MEMORY_BYTES
    assert [each.name for each in (gpus.root / "memory").iterdir()] == ["0"]


def test_bad_names_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="8xH100"):
        simulated.ensure(tmp_path / "state", "8xZ9000", "node-a")
    assert not (tmp_path / "state").exists()
    simulated.remove(tmp_path / "state")


def test_a_foreign_gpu_is_an_error(gpus: Simulated) -> None:
    with pytest.raises(HostError, match="no such GPU"):
        gpus.memory("GPU-of-another-host")


def test_an_instance_has_the_node_of_its_gpu_and_one_of_its_own(gpus: Simulated) -> None:
    cut = Simulated(gpus.root, Plan("1xH100,1xH100:2x3g.40gb", "node-a", 120, 0))
    whole, first, second = cut.gpus()
    assert [gpu.slot for gpu in (whole, first, second)] == ["gpu0", "gpu1-mig0", "gpu1-mig1"]
    made = spec(cut)
    paths = [[node.path for node in device.container_edits.device_nodes] for device in made.devices]
    caps = "/dev/nvidia-caps/nvidia-cap"
    assert paths == [["/dev/nvidia0"], ["/dev/nvidia1", f"{caps}1"], ["/dev/nvidia1", f"{caps}2"]]
    shared, own = set(first.nodes) & set(second.nodes), set(first.nodes) ^ set(second.nodes)
    assert (len(shared), len(own)) == (1, 2)
    minors = {(node.path, node.minor) for device in made.devices for node in device.container_edits.device_nodes}
    assert len({minor for _, minor in minors}) == len({path for path, _ in minors}) == 4
    memories = {device.container_edits.mounts[0].host_path for device in made.devices}
    assert len(memories) == 3
    assert [device.annotations for device in made.devices] == [{INDEX: "0"}, {}, {}]
