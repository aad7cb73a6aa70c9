"""The machine's network namespace and its published SSH port."""

from dataclasses import dataclass

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.step import Outcome
from gpuaas.wire.node import AllocationBody


@dataclass(frozen=True)
class Network:
    name: str = "network"
    needs: tuple[str, ...] = ()  # a container that will not stop is better off without a network
    trouble: str = "The machine's network could not be made."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        host.network_ensure(id, body)
        return Outcome()

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        host.network_remove(id)
        return Outcome()
