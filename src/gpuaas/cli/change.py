"""`gpuaas restart`, `gpuaas release`: what interrupts or ends a machine."""

import sys
from typing import TYPE_CHECKING

import click

from gpuaas.cli import exits, output, progress
from gpuaas.cli.command import Command
from gpuaas.cli.confirm import confirm
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import Changed

_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
detach_option = click.option("--detach", "-d", is_flag=True, help="Return as soon as it is accepted.")


@click.command(cls=Command)
@click.argument("name")
@_yes
@detach_option
@click.pass_obj
def restart(session: Session, name: str, yes: bool, detach: bool) -> int:
    """Restart a machine. Address, host key and disk stay; every session and process on it ends."""
    found = session.client().allocations.show(name)
    losses = [f"Restarting {found.name} ends every session and process on it. Its disk and its address stay."]
    confirm(session, found.name, losses, yes=yes)
    # By id from here on: another project may have a machine of that name by now.
    changed = session.client().allocations.restart(found.id, confirm=found.name)
    return finish(session, changed, detach, "is up again")


@click.command(cls=Command)
@click.argument("name")
@_yes
@detach_option
@click.pass_obj
def release(session: Session, name: str, yes: bool, detach: bool) -> int:
    """Give a machine back. Every session ends and what is on its disk is lost."""
    found = session.client().allocations.show(name)
    losses = [f"Releasing {found.name} ends every session and process on it, and what is on its disk is lost for good."]
    confirm(session, found.name, losses, yes=yes)
    changed = session.client().allocations.release(found.id, confirm=found.name)
    return finish(session, changed, detach, "is released")


def finish(session: Session, changed: "Changed", detach: bool, done: str) -> int:
    from gpuaas.sdk import OperationFailed
    from gpuaas.sdk.types import Changed

    name = changed.allocation.name
    if detach:
        if session.json:
            output.json(changed)
        else:
            output.echo(output.safe(f"{name} is {changed.allocation.state}: gpuaas op follow {changed.operation.id}"))
        return exits.OK
    operation = progress.watch(session, changed.operation, f"{changed.operation.kind} {name}", sys.stderr)
    if session.json:
        output.json(Changed(session.client().allocations.show(changed.allocation.id), operation))
    if operation.state != "succeeded":
        raise OperationFailed(operation)
    if not session.json:
        output.echo(output.safe(f"{name} {done}."))
    return exits.OK
