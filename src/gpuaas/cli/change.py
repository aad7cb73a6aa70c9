"""`gpuaas restart`, `gpuaas release`: what interrupts or ends a machine."""

import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import click

from gpuaas.cli import exits, output, progress
from gpuaas.cli.command import Command
from gpuaas.cli.confirm import confirm
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import Changed

_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
MOST_LOOKED_AT = 1000  # sessions, the newest
detach_option = click.option("--detach", "-d", is_flag=True, help="Return as soon as it is accepted.")


@click.command(cls=Command)
@click.argument("name")
@_yes
@detach_option
@click.pass_obj
def restart(session: Session, name: str, yes: bool, detach: bool) -> int:
    """Restart a machine. Address, host key and disk stay; every session and process on it ends."""
    found = session.client().allocations.show(name)
    losses = [
        f"Restarting {found.name} ends every session and process on it. Its disk and its address stay.",
        *_there_now(session, found.id, unless=yes),
    ]
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
    losses = [
        f"Releasing {found.name} ends every session and process on it, and what is on its disk is lost for good.",
        *_there_now(session, found.id, unless=yes),
    ]
    confirm(session, found.name, losses, yes=yes)
    changed = session.client().allocations.release(found.id, confirm=found.name)
    return finish(session, changed, detach, "is released")


def _there_now(session: Session, id: str, *, unless: bool) -> list[str]:
    """Whose sessions would be interrupted, for whoever is asked. Who may not see that is told the rest."""
    from gpuaas.sdk import ApiError

    if unless:
        return []
    try:
        newest = islice(session.client().access.sessions(id), MOST_LOOKED_AT)
        people = Counter(item.user or "somebody unknown" for item in newest if item.closed_at is None)
    except ApiError:
        return []
    if not people:
        return ["Nobody is logged in there now."]
    who = ", ".join(f"{count} of {name}" for name, count in sorted(people.items()))
    total = people.total()
    return [f"{total} {'session is' if total == 1 else 'sessions are'} open there now: {who}."]


def finish(session: Session, changed: "Changed", detach: bool, done: str | Callable[[], str]) -> int:
    """`done`: what is true of the machine then; a function where only the server knows."""
    from gpuaas.sdk import OperationFailed
    from gpuaas.sdk.types import Changed

    name = changed.allocation.name
    if detach:
        if session.json:
            output.json(changed)
        else:
            output.echo(output.safe(f"{name} is {changed.allocation.state}: gpuaas op follow {changed.operation.id}"))
        return exits.OK
    if changed.allocation.state == "unreachable":
        later = f"Ctrl-C does not stop it, and `gpuaas op follow {changed.operation.id}` looks at it again."
        output.note(output.safe(f"The node of {name} does not answer: this is done when it is back. {later}"))
    operation = progress.watch(session, changed.operation, f"{changed.operation.kind} {name}", sys.stderr)
    if session.json:
        output.json(Changed(session.client().allocations.show(changed.allocation.id), operation))
    if operation.state != "succeeded":
        raise OperationFailed(operation)
    if not session.json:
        output.echo(output.safe(f"{name} {done if isinstance(done, str) else done()}."))
    return exits.OK
