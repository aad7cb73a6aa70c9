"""The managed runtimes that the machine sees. Whatever becomes of them, the machine is ready."""

import logging
from dataclasses import dataclass
from functools import partial

from gpuaas.node.host.interface import Host
from gpuaas.node.steps.step import Outcome, attempt
from gpuaas.wire.node import AllocationBody, RuntimeReport

log = logging.getLogger(__name__)

TRIES = 3
_TROUBLE = "The node could not show it to the machine."
_UNTIL_RESTARTED = "no_place"  # trying again heals everything else, sooner or later


@dataclass(frozen=True)
class Runtimes:
    name: str = "runtimes"
    needs: tuple[str, ...] = ()  # the container has ended by the time somebody could miss them
    trouble: str = "The machine's runtimes could not be made ready."

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        for _ in range(TRIES):
            outcome = attempt(partial(self._ensure, host, id, body))
            if isinstance(outcome, Outcome):
                return outcome
        log.warning("the runtimes of %s: %s", id, outcome)
        reports = [
            RuntimeReport(each.bundle, each.version, "failed", code="runtimes_failed", message=_TROUBLE)
            for each in body.runtimes
        ]
        return Outcome(runtimes=tuple(reports), again=True)

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        host.runtimes_remove(id)
        return Outcome()

    def _ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome:
        reports = tuple(host.runtimes_ensure(id, body))
        again = any(each.state == "failed" and each.code != _UNTIL_RESTARTED for each in reports)
        return Outcome(runtimes=reports, again=again)
