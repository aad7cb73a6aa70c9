"""One pass that carries out a tombstone: every step gets its chance, in reverse, and errors are collected."""

from functools import partial

from gpuaas.kit import traces
from gpuaas.kit.errors import HostError
from gpuaas.node.board import Board
from gpuaas.node.host.interface import Host
from gpuaas.node.progress import Progress, clip
from gpuaas.node.steps import TEARDOWN
from gpuaas.node.steps.step import attempt
from gpuaas.wire.node import Failure, Scrub, Spec

TROUBLE = "The machine could not be taken down yet."


def take_down(host: Host, board: Board, spec: Spec, gpus: list[str], progress: Progress) -> None:
    errors: dict[str, Exception] = {}
    scrubs: list[Scrub] = []
    for step in TEARDOWN:
        progress.started(step.name)
        blockers = ", ".join(name for name in step.needs if name in errors)
        if blockers:
            errors[step.name] = HostError(step.name, spec.id, f"waits for {blockers}")
            progress.failed(step.name, f"Waits for {blockers}.")
            continue
        if not board.moving(spec, progress):
            return
        with traces.span(f"remove {step.name}", spec.correlation_id, gpuaas__allocation=spec.id):
            outcome = attempt(partial(step.remove, host, spec.id, gpus))
        if isinstance(outcome, Exception):
            errors[step.name] = outcome
            progress.failed(step.name, TROUBLE, str(outcome))
        else:
            progress.done(step.name)
            scrubs.extend(outcome.scrubs)
    if errors:
        name, error = next(iter(errors.items()))
        board.failed(spec, progress, Failure(f"{name}_failed", TROUBLE, clip(str(error))), error)
    else:
        board.gone(spec, progress, scrubs)
