"""The report of one pass over one object: its steps with their times, as the condition that is sent."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuaas.kit.clock import Clock
from gpuaas.wire.node import Condition, Failure, RuntimeReport, Scrub, Spec, StepReport

MAX_MESSAGE = 2000


class Progress:
    def __init__(self, spec: Spec, names: Iterable[str], clock: Clock) -> None:
        self._spec = spec
        self._clock = clock
        self._steps = {name: StepReport(name, "pending") for name in names}

    def started(self, name: str) -> None:
        now = self._now()
        self._steps[name] = StepReport(name, "running", started_at=now, progress_at=now)

    def done(self, name: str) -> None:
        self._finish(name, "done")

    def failed(self, name: str, message: str, log: str = "") -> None:
        self._finish(name, "failed", message=clip(message), log=clip(log))

    def condition(
        self,
        state: str,
        *,
        failure: Failure | None = None,
        scrubs: Iterable[Scrub] = (),
        host_key: str = "",
        runtimes: Iterable[RuntimeReport] = (),
    ) -> Condition:
        return Condition(
            self._spec.id,
            self._spec.incarnation,
            self._spec.generation,
            state,
            list(self._steps.values()),
            failure,
            list(scrubs),
            host_key,
            list(runtimes),
        )

    def _finish(self, name: str, state: str, **more: str) -> None:
        now = self._now()
        step = self._steps[name]
        self._steps[name] = replace(
            step, state=state, started_at=step.started_at or now, finished_at=now, progress_at=now, **more
        )

    def _now(self) -> float:
        return self._clock.now().timestamp()


def clip(text: str) -> str:
    """Fits a message field and can always be encoded."""
    return text.encode("utf-8", "replace").decode()[:MAX_MESSAGE]
