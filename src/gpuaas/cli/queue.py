"""`gpuaas queue`: launches that wait."""

from typing import TYPE_CHECKING

import click

from gpuaas.cli import output
from gpuaas.cli.command import Command, project_option
from gpuaas.cli.session import Session

if TYPE_CHECKING:
    from gpuaas.sdk.types import WaitingView


@click.command(cls=Command)
@project_option
@click.pass_obj
def queue(session: Session, project: str | None) -> None:
    """Launches that wait: their place in the line, and why. `gpuaas release NAME` takes one out."""
    found = list(session.client().allocations.queue(session.project(project)))
    if session.json:
        return output.json_page(found)
    columns = ("PLACE", "MACHINES", "OFFER", "PRIORITY", "WAITING", "GIVES UP", "WHY")
    return output.table(columns, [_row(item) for item in found], empty="Nothing waits.")


def _row(item: "WaitingView") -> tuple[object, ...]:
    names = item.names[0] if len(item.names) == 1 else f"{item.names[0]} and {len(item.names) - 1} more"
    why = "; ".join(f"{reason.message} ({reason.count})" for reason in item.reasons)
    if item.kept:
        why = f"next: a machine is kept free for it; {why}"
    gives_up = output.moment(item.expires_at) if item.expires_at else "never"
    return item.position, names, item.offer, item.priority, output.age(item.since), gives_up, why
