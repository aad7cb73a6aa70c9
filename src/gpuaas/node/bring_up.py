"""One pass that makes an object as its spec says: every step in order, ending at the first that fails."""

from functools import partial

from gpuaas.node.board import Board, Target
from gpuaas.node.host.interface import Host, boot_config
from gpuaas.node.progress import Progress, clip
from gpuaas.node.record import Applied
from gpuaas.node.steps import STEPS
from gpuaas.node.steps.access import Access
from gpuaas.node.steps.step import Outcome, attempt
from gpuaas.wire.node import AllocationBody, Failure, Spec


def bring_up(host: Host, board: Board, spec: Spec, body: AllocationBody, target: Target, progress: Progress) -> None:
    """`body` is the spec's, narrowed to the keys that may get in now; `target` says what it was narrowed to."""
    host_key = ""
    for step in STEPS:
        progress.started(step.name)
        if not board.moving(spec, progress):
            return
        outcome = attempt(partial(step.ensure, host, spec.id, body))
        if isinstance(outcome, Exception):
            progress.failed(step.name, step.trouble, str(outcome))
            limit_access(host, spec.id, body)
            board.failed(spec, progress, Failure(f"{step.name}_failed", step.trouble, clip(str(outcome))), outcome)
            return
        progress.done(step.name)
        host_key = outcome.host_key or host_key
    applied = Applied(spec.incarnation, spec.generation, body.restarts, host.boot_id(), boot_config(body))
    board.ready(spec, progress, applied, target, host_key)


def limit_access(host: Host, id: str, body: AllocationBody) -> bool:
    """Keys that were taken away stop working even when something else of the machine cannot be made."""
    return not isinstance(attempt(partial(_limit, host, id, body)), Exception)


def _limit(host: Host, id: str, body: AllocationBody) -> Outcome:
    if any(part.id == id and "access" in part.parts for part in host.present()):
        return Access().ensure(host, id, body)
    return Outcome()
