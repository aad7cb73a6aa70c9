"""The CDI spec of the simulated GPUs, in the names that real ones have: /dev/nvidia0, /dev/kfd, /dev/dri/renderD128."""

import msgspec

from gpuaas.node.host import fake_gpus
from gpuaas.node.host.disk import FileDisk
from gpuaas.node.host.gpus.cdi import ContainerEdits, Device, DeviceNode, Mount, Spec
from gpuaas.node.host.gpus.cdi_edits import INDEX
from gpuaas.node.host.gpus.gpu import Gpu
from gpuaas.node.host.gpus.simulated import CONTROL_NODES, KIND, Simulated, card_node
from gpuaas.node.host.gpus.simulated import numbers as simulated_numbers

FILE = "gpuaas-simulated.json"
_FIRST_RENDER_NODE = 128


def write(simulated: Simulated) -> None:
    """Into its directory `cdi`, for `cdi_read.read([simulated.root / "cdi"])`. Untouched when nothing changed."""
    disk = FileDisk(simulated.root / "cdi")
    try:
        data = msgspec.json.format(msgspec.json.encode(spec(simulated)), indent=2)
        if disk.read(FILE) != data:
            disk.write(FILE, data)
    finally:
        disk.close()


def spec(simulated: Simulated) -> Spec:
    control = [
        _node(simulated, f"/dev/{name}", name, number) for number, name in enumerate(CONTROL_NODES[simulated.vendor])
    ]
    found = simulated.gpus()
    numbers = simulated_numbers(found, simulated.vendor)
    model = fake_gpus.parse(simulated.plan.gpus).model
    return Spec(
        cdi_version="0.6.0",
        kind=KIND,
        devices=[_device(simulated, gpu, numbers) for gpu in found],
        container_edits=ContainerEdits(env=[f"GPUAAS_SIMULATED_GPUS={model}"], device_nodes=control),
    )


def _device(simulated: Simulated, gpu: Gpu, numbers: dict[str, int]) -> Device:
    own = f"gpu{gpu.index}"
    amd = gpu.vendor == "amd"
    path = f"/dev/dri/renderD{_FIRST_RENDER_NODE + gpu.index}" if amd else f"/dev/nvidia{gpu.index}"
    memory = Mount(
        str(simulated.memory(gpu.uuid)),
        f"/dev/gpuaas-sim/memory{gpu.index}",
        ["bind", "rw", "nosuid", "nodev", "noexec", "rprivate"],
    )
    if gpu.card:
        # Numbered as on the host, like NVIDIA's: the GPU's node, which its instances share, and one of its own.
        card = card_node(gpu)
        path = f"/dev/{card.replace('card', 'nvidia')}"
        cap = f"/dev/nvidia-caps/nvidia-cap{gpu.index}"
        nodes = [_node(simulated, path, card, numbers[card]), _node(simulated, cap, own, numbers[own])]
        return Device(gpu.uuid, ContainerEdits(device_nodes=nodes, mounts=[memory]))
    edits = ContainerEdits(device_nodes=[_node(simulated, path, own, numbers[own])], mounts=[memory])
    return Device(gpu.uuid, edits, {INDEX: str(gpu.index)})


def _node(simulated: Simulated, path: str, name: str, number: int) -> DeviceNode:
    plan = simulated.plan
    host_path = str(simulated.root / "dev" / name)
    return DeviceNode(path, host_path, "c", plan.major, plan.first_minor + number, 0o666, "rw")
