"""Which GPUs an allocation holds: simulated ones with real device nodes and bytes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.kit.errors import HostError
from gpuaas.node.host.devices import Devices
from gpuaas.node.host.fake import FakeHost
from gpuaas.node.host.gpus import simulated
from gpuaas.node.host.gpus.source import SimulatedGpus
from gpuaas.node.host.paths import Paths
from gpuaas.wire.node import AllocationBody, SlotSpec
from node.samples import ID, OTHER_ID, body


@pytest.fixture
def gpus(work: Path) -> Iterator[SimulatedGpus]:
    made = SimulatedGpus(work / "gpus", "2xH100", "node-a")
    yield made
    simulated.remove(work / "gpus")


def asking_for(gpus: SimulatedGpus, *numbers: int, restarts: int = 0) -> AllocationBody:
    uuids = [gpus.found().gpus[number].uuid for number in numbers]
    return body(FakeHost(), slots=[SlotSpec("sl-" + "a" * 16, uuids)], restarts=restarts)


def resets(gpus: SimulatedGpus) -> list[int]:
    return [gpus.simulated.resets(gpu.uuid) for gpu in gpus.found().gpus]


def test_a_gpu_is_reset_once_for_each_restart_and_boot(paths: Paths, gpus: SimulatedGpus) -> None:
    devices = Devices(paths, gpus, "boot-1")
    devices.ensure(ID, asking_for(gpus, 0))
    devices.ensure(ID, asking_for(gpus, 0))
    assert resets(gpus) == [0, 0]
    for _ in range(2):
        devices.ensure(ID, asking_for(gpus, 0, restarts=1))
    assert resets(gpus) == [1, 0]
    Devices(paths, gpus, "boot-2").ensure(ID, asking_for(gpus, 0, restarts=1))
    assert resets(gpus) == [2, 0]


def test_a_gpu_goes_from_one_to_the_next_only_through_a_scrub(paths: Paths, gpus: SimulatedGpus) -> None:
    devices = Devices(paths, gpus, "boot-1")
    uuid = gpus.found().gpus[0].uuid
    devices.ensure(ID, asking_for(gpus, 0))
    with pytest.raises(HostError, match="in use"):
        devices.ensure(OTHER_ID, asking_for(gpus, 0))
    gpus.simulated.memory(uuid).write_bytes(b"a secret")
    (gpus.simulated.root / "scrub/0").write_text("the scrubber is on holiday")
    assert [scrub.clean for scrub in devices.remove(ID, [])] == [False]
    with pytest.raises(HostError, match="not scrubbed"):
        devices.ensure(OTHER_ID, asking_for(gpus, 0))
    (gpus.simulated.root / "scrub/0").unlink()
    scrubs = devices.remove(ID, [uuid])
    assert [scrub.clean for scrub in scrubs] == [True]
    assert "read back as zero" in scrubs[0].evidence
    assert b"secret" not in gpus.simulated.memory(uuid).read_bytes()
    devices.ensure(OTHER_ID, asking_for(gpus, 0))
    assert devices.ids() == {OTHER_ID}


def test_marks_come_before_the_record(paths: Paths, gpus: SimulatedGpus) -> None:
    """Whoever dies between the two leaves a GPU that only a scrub frees."""
    devices = Devices(paths, gpus, "boot-1")
    devices.ensure(ID, asking_for(gpus, 0, 1))
    (paths.state / "devices" / ID).unlink()
    with pytest.raises(HostError, match="not scrubbed"):
        devices.ensure(OTHER_ID, asking_for(gpus, 1))
    devices.ensure(ID, asking_for(gpus, 0, 1))
    assert devices.ids() == {ID}


def test_what_a_container_gets(paths: Paths, gpus: SimulatedGpus) -> None:
    devices = Devices(paths, gpus, "boot-1")
    devices.ensure(ID, asking_for(gpus, 1))
    edits = devices.edits(ID)
    assert "CUDA_VISIBLE_DEVICES=0" in edits.env
    assert any(mount["destination"] == "/dev/nvidia0" for mount in edits.mounts)
    (paths.state / "devices" / ID).write_text("{torn")
    with pytest.raises(HostError, match="damaged"):
        devices.held(ID)
