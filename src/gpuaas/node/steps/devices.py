"""The GPUs of the allocation's slots: handed over, reset on restart, scrubbed when given back."""

from dataclasses import dataclass

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.step import Outcome
from gpuaas.wire.node import AllocationBody


@dataclass(frozen=True)
class Devices:
    name: str = "devices"
    needs: tuple[str, ...] = ("container",)  # a scrub proves nothing while a process can still write
    trouble: str = "The machine's GPUs could not be made ready."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        host.devices_ensure(id, body)
        return Outcome()

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        return Outcome(scrubs=tuple(host.devices_remove(id, gpus)))
