"""Knobs of the fakes: calls that fail, take time, or are interrupted at a named point."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpuaas.kit.errors import HostError

Hook = Callable[[str, str], None]


class Crash(BaseException):
    """The agent dies here. Not an Exception, so that no handler of the agent can survive it."""


@dataclass
class _Fault:
    point: str
    id: str | None
    times: int
    cause: str
    transient: bool


class Faults:
    """Points are named `verb:before`, `verb:<part>`, `verb:after`; a bare verb means its `before`."""

    def __init__(self, sleep: Callable[[float], None] | None = None) -> None:
        self.hook: Hook | None = None
        self.delays: dict[str, float] = {}
        self.sleep: Callable[[float], None] = sleep or (lambda seconds: None)
        self.mutex = threading.RLock()
        self._faults: list[_Fault] = []

    def fail(
        self, verb: str, times: int = 1, cause: str = "injected", id: str | None = None, transient: bool = True
    ) -> None:
        """The next `times` calls of `verb` (for `id`, or for any) fail."""
        self._faults.append(_Fault(_point_name(verb), id, times, cause, transient))

    def heal(self) -> None:
        """No call fails or waits any more."""
        self._faults.clear()
        self.delays.clear()

    def reach(self, point: str, id: str) -> None:
        """Called by the fakes at each point of each mutating verb."""
        if self.hook is not None:
            self.hook(point, id)
        verb, _, part = point.partition(":")
        if part == "before" and verb in self.delays:
            self.sleep(self.delays[verb])
        fault = self.trip(point, id)
        if fault is not None:
            raise HostError(verb, id, fault.cause, transient=fault.transient)

    def trip(self, point: str, id: str) -> _Fault | None:
        with self.mutex:
            for fault in self._faults:
                if fault.point == _point_name(point) and fault.id in (None, id) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


def _point_name(verb: str) -> str:
    return verb if ":" in verb else f"{verb}:before"
