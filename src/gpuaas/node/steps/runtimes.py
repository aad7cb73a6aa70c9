"""The managed runtimes that the machine sees. Whatever becomes of them, the machine is ready."""

import logging
from dataclasses import dataclass
from functools import partial

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.step import Outcome, attempt
from gpuaas.wire.node import AllocationBody, RuntimeReport

log = logging.getLogger(__name__)

_TRIES = 3
_TROUBLE = "The node could not show it to the machine."


@dataclass(frozen=True)
class Runtimes:
    name: str = "runtimes"
    needs: tuple[str, ...] = ()  # the container has ended by the time somebody could miss them
    trouble: str = "The machine's runtimes could not be made ready."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        for _ in range(_TRIES):
            outcome = attempt(partial(self._ensure, host, id, body))
            if isinstance(outcome, Outcome):
                return outcome
        log.warning("the runtimes of %s: %s", id, outcome)
        return Outcome(
            runtimes=tuple(
                RuntimeReport(each.bundle, each.version, "failed", code="runtimes_failed", message=_TROUBLE)
                for each in body.runtimes
            )
        )

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        host.runtimes_remove(id)
        return Outcome()

    def _ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        return Outcome(runtimes=tuple(host.runtimes_ensure(id, body)))
