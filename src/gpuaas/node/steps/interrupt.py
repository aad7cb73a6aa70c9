"""Stops a container that has to be started anew, or must not run, before anything below it is touched."""

from dataclasses import dataclass

from gpuaas.node.host.interface import CONFIG_VERSION, Host, Machine, boot_config
from gpuaas.node.steps.step import Outcome
from gpuaas.wire.node import AllocationBody


@dataclass(frozen=True)
class Interrupt:
    name: str = "stop"
    needs: tuple[str, ...] = ()
    trouble: str = "The machine could not be stopped."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        machine = host.container(id)
        if machine is not None and machine.running and (body.stopped or is_behind(machine, body)):
            host.container_stop(id)
        return Outcome()

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        return Outcome()


def is_behind(machine: Machine, body: AllocationBody) -> bool:
    """Whether a restart was asked for since it was started, or it was started as something else."""
    other_config = machine.config.startswith(CONFIG_VERSION) and machine.config != boot_config(body)
    return machine.restarts < body.restarts or other_config
