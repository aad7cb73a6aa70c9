"""A machine on a MIG instance, on the real kernel: it has its own part of the GPU, and nothing of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaas.node.host.gpus.gpu import Gpu
from gpuaas.node.host.images.store import Images
from gpuaas.wire.node import SlotSpec
from root.conftest import CACHE, needs
from root.linux import Keyed, Node, World

pytestmark = needs("runc", "catatonit", "nft", "ssh", "ssh-keygen")


@pytest.fixture
def world(work: Path, base_image: Images) -> Iterator[World]:
    (work / "person").mkdir()
    node = Node(work, CACHE / "images", gpus="1xH100:7x1g.10gb")
    made = World(node, Keyed(work / "person"))
    yield made
    made.want(None)
    made.node.host.shut_down()


def gpus(world: World) -> list[Gpu]:
    return world.node.host.gpus.found().gpus


def test_it_has_its_own_instance_and_no_other(world: World) -> None:
    inventory = world.node.host.inventory()
    assert [slot.name for slot in inventory.slots] == [f"gpu0-mig{n}" for n in range(7)]
    assert len({gpu.card for gpu in inventory.gpus}) == 1
    third = gpus(world)[3]
    assert world.launch(slots=[SlotSpec("sl-" + "a" * 16, [third.uuid])]).state == "ready"
    assert world.ssh("ls /dev/nvidia-caps /dev/gpuaas-sim").split() == [
        "/dev/gpuaas-sim:", "memory3", "/dev/nvidia-caps:", "nvidia-cap3",
    ]  # fmt: skip
    assert world.ssh("ls -d /dev/nvidia[0-9]*") == "/dev/nvidia0"
    # ENXIO is what an allowed node of a simulated GPU answers; EPERM one that the device cgroup refuses.
    assert "No such device or address" in world.ssh("cat /dev/nvidia-caps/nvidia-cap3 2>&1 || true")
    assert world.ssh("echo $CUDA_VISIBLE_DEVICES") == third.uuid
    world.ssh("printf secret | dd of=/dev/gpuaas-sim/memory3 conv=notrunc 2>&1")
    memory = world.node.config.paths.state / "simulated-gpus/memory/3"
    assert memory.read_bytes().startswith(b"secret")
    gone = world.release()
    assert gone.state == "gone"
    assert [(scrub.gpu, scrub.clean) for scrub in gone.scrubs] == [(third.uuid, True)]
    assert not memory.read_bytes().strip(b"\0")
