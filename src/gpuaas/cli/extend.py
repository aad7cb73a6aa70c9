"""`gpuaas extend`: let a machine stay longer."""

import sys

import click

from gpuaas.cli import exits, output, progress, units
from gpuaas.cli.allocations import ends
from gpuaas.cli.change import detach_option
from gpuaas.cli.command import Command
from gpuaas.cli.session import Session


@click.command(cls=Command)
@click.argument("name")
@click.argument("time", type=units.duration)
@detach_option
@click.pass_obj
def extend(session: Session, name: str, time: int, detach: bool) -> int:
    """Let a machine stay longer by TIME, like 4h. One that was stopped is started again."""
    from gpuaas.sdk import OperationFailed
    from gpuaas.sdk.types import Extended

    done = session.client().allocations.extend(name, time)
    if done.operation is not None and not detach:
        operation = progress.watch(session, done.operation, f"restart {done.allocation.name}", sys.stderr)
        done = Extended(session.client().allocations.show(done.allocation.id), operation)
        if operation.state != "succeeded":
            raise OperationFailed(operation)
    if session.json:
        output.json(done)
    else:
        when = ends(done.allocation)
        output.echo(output.safe(f"{done.allocation.name} is {done.allocation.state}" + (f", {when}." if when else ".")))
    return exits.OK
