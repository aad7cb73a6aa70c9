"""One pass that makes an object as its spec says: every step after those it stands on, ending where one fails.

Where this agent has left a machine as it should be and only other runtimes are wanted, only they are looked at: whoever
switches one waits for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from gpuaas.kit import traces
from gpuaas.node.board import Board, Made, Target
from gpuaas.node.host.interface import Host, boot_config
from gpuaas.node.lanes import Lanes
from gpuaas.node.progress import Progress, clip
from gpuaas.node.record import Applied
from gpuaas.node.steps import RUNTIMES_ALONE, STAGES, STEPS
from gpuaas.node.steps.access import Access
from gpuaas.node.steps.runtimes import Runtimes
from gpuaas.node.steps.step import Outcome, Step, attempt
from gpuaas.wire.node import AllocationBody, Failure, RuntimeReport, Spec


@dataclass(frozen=True)
class _End:
    """Of a lane: `step` failed for `why`; without a step, somebody wants something newer."""

    step: Step | None = None
    why: Exception | None = None
    host_key: str = ""
    runtimes: tuple[RuntimeReport, ...] = ()
    again: bool = False
    done: bool = False


def bring_up(
    host: Host,
    board: Board,
    spec: Spec,
    body: AllocationBody,
    target: Target,
    progress: Progress,
    run: Lanes,
    made: Made | None,
) -> None:
    """`body` is the spec's, narrowed to the keys that may get in now; `target` says what it was narrowed to.

    `made`: as this agent has left it, if it is so still.
    """
    host_key, stages = "", STAGES
    if made is not None and made.is_but_for_runtimes(body):
        host_key, stages = made.host_key, RUNTIMES_ALONE
        for step in STEPS[:-1]:
            progress.done(step.name)
    runtimes: tuple[RuntimeReport, ...] = ()
    again = False
    for lanes in stages:
        for end in run([partial(_lane, host, board, spec, body, progress, lane) for lane in lanes]):
            if end.step is not None and end.why is not None:
                limit_access(host, spec.id, body)
                failure = Failure(f"{end.step.name}_failed", end.step.trouble, clip(str(end.why)))
                board.failed(spec, progress, failure, end.why)
            if not end.done:
                return
            host_key, runtimes, again = end.host_key or host_key, end.runtimes or runtimes, end.again or again
    applied = Applied(spec.incarnation, spec.generation, body.restarts, host.boot_id(), boot_config(body))
    board.ready(spec, progress, applied, target, Made(body, host_key), runtimes, again=again)


def look_again(host: Host, board: Board, spec: Spec, body: AllocationBody) -> None:
    """At what may have become of its runtimes; the machine is as it should be."""
    outcome = Runtimes().ensure(host, spec.id, body)
    board.runtimes(spec, outcome.runtimes, again=outcome.again)


def _lane(
    host: Host, board: Board, spec: Spec, body: AllocationBody, progress: Progress, steps: Sequence[Step]
) -> _End:
    host_key, again = "", False
    runtimes: tuple[RuntimeReport, ...] = ()
    for step in steps:
        progress.started(step.name)
        if not board.moving(spec, progress):
            return _End()
        with traces.span(f"ensure {step.name}", spec.correlation_id, gpuaas__allocation=spec.id):
            outcome = attempt(partial(step.ensure, host, spec.id, body))
        if isinstance(outcome, Exception):
            progress.failed(step.name, step.trouble, str(outcome))
            return _End(step, outcome)
        progress.done(step.name)
        host_key, runtimes = outcome.host_key or host_key, outcome.runtimes or runtimes
        again |= outcome.again
    return _End(host_key=host_key, runtimes=runtimes, again=again, done=True)


def limit_access(host: Host, id: str, body: AllocationBody) -> bool:
    """Keys that were taken away stop working even when something else of the machine cannot be made."""
    return not isinstance(attempt(partial(_limit, host, id, body)), Exception)


def _limit(host: Host, id: str, body: AllocationBody) -> Outcome:
    if any(part.id == id and "access" in part.parts for part in host.present()):
        return Access().ensure(host, id, body)
    return Outcome()
