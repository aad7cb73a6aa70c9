"""The allocation's own file system layer and id range."""

from dataclasses import dataclass

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.step import Outcome
from gpuaas.wire.node import AllocationBody


@dataclass(frozen=True)
class Rootfs:
    name: str = "rootfs"
    needs: tuple[str, ...] = ("container",)  # its processes still have it open, and its id range in use
    trouble: str = "The machine's file system could not be made."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        host.rootfs_ensure(id, body)
        return Outcome()

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        host.rootfs_remove(id)
        return Outcome()
