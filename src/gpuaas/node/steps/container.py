"""The running machine itself."""

from dataclasses import dataclass

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.interrupt import is_behind
from gpuaas.node.steps.step import Outcome
from gpuaas.wire.node import AllocationBody


@dataclass(frozen=True)
class RunningContainer:
    name: str = "container"
    needs: tuple[str, ...] = ()
    trouble: str = "The machine could not be started."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        machine = host.container(id)
        if body.stopped:
            if machine is not None and machine.running:
                host.container_stop(id)
            return Outcome()
        if machine is not None and machine.running:
            if not is_behind(machine, body):
                return Outcome()
            host.container_stop(id)
        host.container_start(id, body)
        return Outcome()

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        host.container_stop(id)
        return Outcome()
