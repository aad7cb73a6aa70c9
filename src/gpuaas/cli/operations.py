"""`gpuaas op`: long changes and their phases."""

import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from gpuaas.cli import exits, output, progress
from gpuaas.cli.command import Group
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import OperationView, PhaseView


@click.group(cls=Group)
def op() -> None:
    """Long changes (launch, restart, release) and their phases."""


@op.command()
@click.argument("allocation", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many, newest first.")
@click.pass_obj
def ls(session: Session, allocation: str | None, limit: int) -> None:
    """List operations, newest first: of one machine, or of all that you see."""
    found = list(islice(session.client().operations.list(allocation), limit))
    if session.json:
        return output.json_page(found)
    return output.table(
        ("ID", "KIND", "STATE", "MACHINE", "STARTED", "TOOK"),
        [_row(item) for item in found],
        empty="No operations yet.",
    )


def _row(item: "OperationView") -> list[str]:
    took = output.duration((item.finished_at - item.created_at).total_seconds()) if item.finished_at else ""
    return [item.id, item.kind, item.state, item.allocation_id, output.moment(item.created_at), took]


@op.command()
@click.argument("operation_id", metavar="OPERATION")
@click.pass_obj
def show(session: Session, operation_id: str) -> None:
    """Show one operation with its phases."""
    found = session.client().operations.show(operation_id)
    if session.json:
        return output.json(found)
    failure = f"{found.failure.message} ({found.failure.code})" if found.failure else ""
    output.fields(
        [
            ("id", found.id),
            ("kind", found.kind),
            ("state", found.state),
            ("failure", failure),
            ("machine", found.allocation_id),
            ("by", found.created_by),
            ("started", output.moment(found.created_at)),
            ("finished", output.moment(found.finished_at) if found.finished_at else ""),
            ("correlation id", found.correlation_id),
        ]
    )
    output.echo()
    output.table(("PHASE", "STATE", "TOOK", "MESSAGE"), [_phase_row(phase) for phase in found.phases])
    for phase in found.phases:
        for line in phase.log.splitlines():
            output.echo(output.safe(f"{phase.name} | {line}"))
    return None


def _phase_row(phase: "PhaseView") -> tuple[str, str, str, str]:
    taken = progress.seconds(phase)
    return phase.name, phase.state, "" if taken is None else output.duration(taken), phase.message


@op.command()
@click.argument("operation_id", metavar="OPERATION")
@click.pass_obj
def follow(session: Session, operation_id: str) -> int:
    """Show an operation until it is over. Exit code 1: it did not succeed. With --json, one line per change."""
    client = session.client()
    if session.json:
        for found in client.operations.follow(operation_id):
            output.json(found)
    else:
        first = client.operations.show(operation_id)
        found = progress.watch(session, first, f"{first.kind} {first.allocation_id}", sys.stdout)
    if found.state != "succeeded":
        from gpuaas.sdk import OperationFailed

        raise OperationFailed(found)
    return exits.OK
