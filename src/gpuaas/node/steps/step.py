"""What every step looks like to the runner."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuaas.node.host.interface import Host
from gpuaas.wire.node import AllocationBody, RuntimeReport, Scrub


@dataclass(frozen=True)
class Outcome:
    """What a step found out that the server must hear."""

    host_key: str = ""
    scrubs: tuple[Scrub, ...] = ()
    runtimes: tuple[RuntimeReport, ...] = ()
    again: bool = False  # something of them failed that may not fail the next time


class Step(Protocol):
    @property
    def name(self) -> str:
        """Also the phase's name in reports, and the first half of its failure code."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """The teardown steps that must have succeeded before `remove()` may run."""
        ...

    @property
    def trouble(self) -> str:
        """What a user reads when it fails."""
        ...

    def ensure(self, host: Host, id: str, body: AllocationBody) -> Outcome: ...

    def remove(self, host: Host, id: str, gpus: list[str]) -> Outcome:
        """`gpus`: every GPU that the allocation was ever meant to have."""
        ...


def attempt(act: Callable[[], Outcome]) -> Outcome | Exception:
    """The outer loop of every step: a bug in one is that step's failure, never a crash loop of the agent."""
    try:
        return act()
    except Exception as error:
        return error
